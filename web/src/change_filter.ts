/** The nodes of a call tree that a view shows: those of a kind of change, and their callers. */

import { type ChangeKind, changeKind } from './diff';
import { type CallTree, ROOT, type Weights } from './tree';

/** A filter of nodes. `changed` is all but `same`. */
export type ChangeFilter = 'all' | 'changed' | Exclude<ChangeKind, 'same'>;

/** The filters with their titles. */
export const CHANGE_FILTERS: readonly [ChangeFilter, string][] = [
  ['all', 'All functions'],
  ['changed', 'Changed'],
  ['new', 'New'],
  ['removed', 'Removed'],
  ['more', 'More'],
  ['less', 'Less'],
];

/** Returns 2 for nodes that the filter wants, 1 for their callers, and 0 for others. */
export function shownNodes(tree: CallTree, { total }: Weights, filter: ChangeFilter): Uint8Array {
  const [before, after] = total;
  const shown = new Uint8Array(tree.caller.length);
  for (let node = shown.length - 1; node > ROOT; node -= 1) {
    const [first, second] = [before?.[node] ?? 0, after?.[node] ?? before?.[node] ?? 0];
    if ((first !== 0 || second !== 0) && wants(filter, changeKind(first, second))) {
      shown[node] = 2;
    }
    if (shown[node] !== 0 && shown[tree.caller[node]!] === 0) {
      shown[tree.caller[node]!] = 1;
    }
  }
  return shown;
}

function wants(filter: ChangeFilter, kind: ChangeKind): boolean {
  return filter === 'all' || filter === kind || (filter === 'changed' && kind !== 'same');
}

/** Returns the shown callees of a node: those with the largest change, or weight, first. */
export function shownCallees(tree: CallTree, { total }: Weights, shown: Uint8Array, node: number): number[] {
  const [before, after] = total;
  const weight = (callee: number) => Math.max(Math.abs(before?.[callee] ?? 0), Math.abs(after?.[callee] ?? 0));
  const change = (callee: number) => (after === undefined ? 0 : Math.abs(after[callee]! - (before?.[callee] ?? 0)));
  return Array.from(tree.callees.subarray(tree.first[node], tree.first[node + 1]))
    .filter((callee) => shown[callee] !== 0)
    .sort((one, other) => change(other) - change(one) || weight(other) - weight(one) || one - other);
}
