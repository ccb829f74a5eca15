/** The parts of stacks that a view keeps: all, or the callers or callees of matching functions. */

import type { WeighedTree } from './sandwich';
import { type CallTree, ROOT, TreeBuilder, addUp } from './tree';

/** The kept part of each stack. */
export type Keep = 'all' | 'callers' | 'callees';

/** The choices with their titles. */
export const KEEPS: readonly [Keep, string][] = [
  ['all', 'All stacks'],
  ['callers', 'Callers of matches'],
  ['callees', 'Callees of matches'],
];

/** Returns the choice with a name, or that of all stacks. */
export function keepOf(name: string | null): Keep {
  return KEEPS.find(([keep]) => keep === name)?.[0] ?? 'all';
}

/**
 * Returns the stacks up to their innermost match. Other stacks have no weight. The tree is the
 * same one.
 */
export function keepCallers(tree: CallTree, own: readonly Float64Array[], matches: readonly boolean[]): WeighedTree {
  // The innermost match at or above each node. ROOT: none.
  const match = new Int32Array(tree.caller.length);
  for (let node = ROOT + 1; node < match.length; node += 1) {
    match[node] = matches[tree.functions[node]!] === true ? node : match[tree.caller[node]!]!;
  }
  return { tree, weights: addUp(tree, moved(own, match, match.length)) };
}

/** Returns the stacks from their outermost match on. */
export function keepCallees(
  tree: CallTree, own: readonly Float64Array[], matches: readonly boolean[], functionCount: number,
): WeighedTree {
  const builder = new TreeBuilder(functionCount);
  // The node in the new tree. ROOT: not below a match.
  const nodes = new Int32Array(tree.caller.length);
  for (let node = ROOT + 1; node < nodes.length; node += 1) {
    const above = nodes[tree.caller[node]!]!;
    const fn = tree.functions[node]!;
    if (above !== ROOT || matches[fn] === true) {
      nodes[node] = builder.callee(above, fn);
    }
  }
  const kept = builder.finish();
  return { tree: kept, weights: addUp(kept, moved(own, nodes, kept.caller.length)) };
}

/** Adds the weight of each node to another one. That of nodes without one is left out. */
function moved(own: readonly Float64Array[], to: Int32Array, count: number): Float64Array[] {
  return own.map((column) => {
    const sums = new Float64Array(count);
    to.forEach((target, node) => {
      if (target !== ROOT) {
        sums[target]! += column[node]!;
      }
    });
    return sums;
  });
}
