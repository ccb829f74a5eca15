import assert from 'node:assert/strict';
import test from 'node:test';
import { keepCallees, keepCallers, keepOf } from '../src/keep';
import type { WeighedTree } from '../src/sandwich';
import { ROOT } from '../src/tree';
import { ALL, type Line, profile } from './sample';

/** Returns the own weights of the stacks with one, in each column. */
function stacks(of: ReturnType<typeof profile>, { tree, weights }: WeighedTree) {
  const path = (node: number): string =>
    node === ROOT ? '' : `${path(tree.caller[node]!)};${of.functionName(tree.functions[node]!).name}`;
  const rows = [...tree.caller.keys()].map((node) => [path(node), weights.own.map((column) => column[node])] as const);
  return Object.fromEntries(rows.filter(([, own]) => own.some((weight) => weight !== 0)));
}

function kept(pattern: RegExp, ...sides: Line[][]) {
  const of = profile(...sides);
  const matches = of.functions.map(({ name }) => pattern.test(name));
  const { own } = of.weigh(ALL);
  const callers = keepCallers(of.tree, own, matches);
  const callees = keepCallees(of.tree, own, matches, of.functions.length);
  return { callers: stacks(of, callers), callees: stacks(of, callees), totals: [callers, callees].map((one) => one.weights.total[0]![ROOT]) };
}

test('callers of matches end at the innermost match', () => {
  const { callers, totals } = kept(/^f/, [['main;f;g', 5], ['main;f;g;f2;h', 3], ['main;f', 2], ['main;x', 7]]);
  assert.deepEqual(callers, { ';main;f': [7], ';main;f;g;f2': [3] });
  assert.deepEqual(totals, [10, 10]);
});

test('callees of matches begin at the outermost match', () => {
  const { callees } = kept(/^f/, [['main;f;g', 5], ['other;f;g', 4], ['main;f;g;f2;h', 3], ['main;x', 7]]);
  assert.deepEqual(callees, { ';f;g': [9], ';f;g;f2;h': [3] });
});

test('both sides of a comparison are kept', () => {
  const { callers, callees } = kept(/^f$/, [['main;f;x', 5]], [['main;f;y', 4], ['main', 1]]);
  assert.deepEqual(callers, { ';main;f': [5, 4] });
  assert.deepEqual(callees, { ';f;x': [5, 0], ';f;y': [0, 4] });
});

test('without matches nothing is kept', () => {
  assert.deepEqual(kept(/^none$/, [['main;f', 5]]).totals, [0, 0]);
  assert.equal(keepOf('callers'), 'callers');
  assert.equal(keepOf('other'), 'all');
  assert.equal(keepOf(null), 'all');
});
