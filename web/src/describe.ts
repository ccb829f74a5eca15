/** Sentences about frames, for the line below a graph and for screen readers. */

import { changeOf } from './diff';
import type { FunctionName } from './model';
import { type CallTree, ROOT, type Weights, weightsAt } from './tree';
import { formatPercent, formatWeight } from './units';

/** The parts of a description that all frames of a view share. */
export interface Terms {
  event: string;
  unit: string;
  functionName: (fn: number) => FunctionName;
}

/** Returns weights as text: one, or two with their change. */
export function describeWeights(weights: readonly number[], all: readonly number[], unit: string): string {
  const [before = 0, after] = weights;
  const text = (weight: number, total = 0) => `${formatWeight(weight, unit)} (${formatPercent(weight, total)})`;
  if (after === undefined) {
    return text(before, all[0]);
  }
  const change = changeOf(before, after);
  return `${text(before, all[0])} before, ${text(after, all[1])} after: ${change.text}`;
}

/** Returns the description of a frame. In an upward tree, a node's callers are below it. */
export function describe(tree: CallTree, weights: Weights, node: number, terms: Terms, isUpward: boolean): string {
  const all = weightsAt(weights.total, ROOT);
  const total = describeWeights(weightsAt(weights.total, node), all, terms.unit);
  if (node === ROOT) {
    return `all: ${total} of ${terms.event}`;
  }
  const { name, file, module } = terms.functionName(tree.functions[node]!);
  const parts = [`${name}: total ${total}`];
  if (!isUpward) {
    parts.push(`own ${describeWeights(weightsAt(weights.own, node), all, terms.unit)}`);
  }
  parts.push(`depth ${tree.depth[node]!}`);
  const next = tree.caller[node]!;
  if (next !== ROOT) {
    parts.push(`${isUpward ? 'calls' : 'called by'} ${terms.functionName(tree.functions[next]!).name}`);
  }
  const place = [file, module].filter((text) => text !== '').join(', ');
  return place === '' ? parts.join('; ') : `${parts.join('; ')}; ${place}`;
}
