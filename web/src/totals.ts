/** The weights of functions. */

import { type CallTree, ROOT, type Weights, weightsAt } from './tree';

/** The weights of a function, one for each column. */
export interface FunctionWeight {
  fn: number;
  own: number[];
  /** Recursion counts once. */
  total: number[];
}

/** Returns the functions with a weight in any column, in no order. */
export function totals(tree: CallTree, weights: Weights): FunctionWeight[] {
  const rows = new Map<number, FunctionWeight>();
  const columns = weights.own.length;
  const calls = new Map<number, number>();
  walk(tree, (node, enters) => {
    const fn = tree.functions[node]!;
    const open = calls.get(fn) ?? 0;
    calls.set(fn, open + (enters ? 1 : -1));
    if (!enters) {
      return;
    }
    let row = rows.get(fn);
    if (row === undefined) {
      row = { fn, own: new Array<number>(columns).fill(0), total: new Array<number>(columns).fill(0) };
      rows.set(fn, row);
    }
    add(row.own, weightsAt(weights.own, node));
    if (open === 0) {
      add(row.total, weightsAt(weights.total, node));
    }
  });
  const hasWeight = (weight: number) => weight !== 0;
  return [...rows.values()].filter((row) => row.own.some(hasWeight) || row.total.some(hasWeight));
}

/** Calls `visit` before and after the callees of each node but the root. */
function walk(tree: CallTree, visit: (node: number, enters: boolean) => void): void {
  // A negative number leaves the node.
  const pending: number[] = [ROOT];
  for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
    if (node < 0) {
      visit(-node, false);
      continue;
    }
    if (node !== ROOT) {
      visit(node, true);
      pending.push(-node);
    }
    for (let at = tree.first[node]!; at < tree.first[node + 1]!; at += 1) {
      pending.push(tree.callees[at]!);
    }
  }
}

function add(sums: number[], weights: readonly number[]): void {
  weights.forEach((weight, column) => {
    sums[column]! += weight;
  });
}
