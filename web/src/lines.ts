/** The weights of source lines, for editors. */

import type { Profile, Selection } from './model';
import { totals } from './totals';
import { TreeBuilder, addUp } from './tree';

/** The weight of a line. In a comparison, that of the first profile. */
export interface LineWeight {
  line: number;
  own: number;
  /** The weight of the stacks with this line. A stack counts once. */
  total: number;
}

/** Returns the lines of each source file with a weight. Unknown files and lines are left out. */
export function lineWeights(profile: Profile, selection: Selection): Map<string, LineWeight[]> {
  const { frames, functions, stacks, strings } = profile.data;
  // Lines are like functions of a call tree.
  const lines: { file: string; line: number }[] = [];
  const known = new Map<string, number>();
  const lineOfFrame = frames.function.map((fn, at) => {
    const place = { file: strings[functions.file[fn] ?? -1] ?? '', line: frames.line[at] ?? 0 };
    const key = `${place.line} ${place.file}`;
    const number = known.get(key) ?? lines.push(place) - 1;
    known.set(key, number);
    return number;
  });
  const builder = new TreeBuilder(lines.length);
  const nodes = new Int32Array(stacks.caller.length + 1);
  stacks.caller.forEach((caller, at) => {
    nodes[at + 1] = builder.callee(nodes[caller]!, lineOfFrame[stacks.frame[at]!]!);
  });
  const tree = builder.finish();
  const found = new Map<string, LineWeight[]>();
  for (const { fn, own, total } of totals(tree, addUp(tree, profile.own(selection, nodes, tree.caller.length)))) {
    const { file, line } = lines[fn]!;
    if (file !== '' && line > 0) {
      const rows = found.get(file) ?? [];
      rows.push({ line, own: own[0]!, total: total[0]! });
      found.set(file, rows);
    }
  }
  return found;
}

/** Returns the line of a function with the most weight below it, or 0 if its lines are unknown. */
export function heaviestLine(profile: Profile, selection: Selection, fn: number): number {
  const { frames, stacks } = profile.data;
  const stackNumbers = Int32Array.from({ length: stacks.caller.length + 1 }, (_, at) => at);
  const sums = profile.own(selection, stackNumbers, stackNumbers.length)[0] ?? new Float64Array();
  const lines = new Map<number, number>();
  for (let stack = stacks.caller.length; stack > 0; stack -= 1) {
    const frame = stacks.frame[stack - 1]!;
    const line = frames.line[frame] ?? 0;
    if (frames.function[frame] === fn && line > 0) {
      lines.set(line, (lines.get(line) ?? 0) + sums[stack]!);
    }
    sums[stacks.caller[stack - 1]!]! += sums[stack]!;
  }
  const [heaviest] = [...lines].sort(([, one], [, other]) => other - one);
  return heaviest?.[0] ?? 0;
}
