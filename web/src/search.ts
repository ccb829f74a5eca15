/** Search of functions by a regular expression. */

import type { FunctionName } from './model';
import { type CallTree, ROOT, type Weights } from './tree';

/** Returns the expression of a pattern. Patterns without capitals match any case. */
export function compile(pattern: string): RegExp {
  // A capital after a backslash is a class as `\W`, and no letter.
  const letters = pattern.replace(/\\./g, '');
  return new RegExp(pattern, letters === letters.toLowerCase() ? 'i' : '');
}

/** Returns for each function whether its name, its file or its module matches. */
export function matching(functions: readonly FunctionName[], pattern: RegExp): boolean[] {
  return functions.map(({ name, file, module }) => [name, file, module].some((text) => pattern.test(text)));
}

/** Returns the weight of the stacks with a match in each column. A stack counts once. */
export function matchedWeight(tree: CallTree, weights: Weights, matches: readonly boolean[]): number[] {
  const isBelow = new Uint8Array(tree.caller.length);
  const sums = weights.total.map(() => 0);
  for (let node = ROOT + 1; node < tree.caller.length; node += 1) {
    if (isBelow[tree.caller[node]!] === 1) {
      isBelow[node] = 1;
    } else if (matches[tree.functions[node]!] === true) {
      isBelow[node] = 1;
      weights.total.forEach((column, at) => {
        sums[at]! += column[node]!;
      });
    }
  }
  return sums;
}
