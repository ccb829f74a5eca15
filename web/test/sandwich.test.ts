import assert from 'node:assert/strict';
import test from 'node:test';
import { type WeighedTree, sandwich } from '../src/sandwich';
import { ROOT } from '../src/tree';
import { ALL, type Line, fn, profile } from './sample';

/** Returns the paths of a tree with their totals. */
function paths(of: ReturnType<typeof profile>, { tree, weights }: WeighedTree) {
  const path = (node: number): string =>
    node === ROOT ? '' : `${path(tree.caller[node]!)};${of.functionName(tree.functions[node]!).name}`;
  return Object.fromEntries([...tree.caller.keys()].map((node) => [path(node), weights.total.map((column) => column[node])]));
}

function around(name: string, ...sides: Line[][]) {
  const of = profile(...sides);
  const parts = sandwich(of.tree, of.weigh(ALL), fn(of, name), of.functions.length);
  return { callers: paths(of, parts.callers), callees: paths(of, parts.callees), isCut: parts.isCut };
}

test('callers and callees have the same sum', () => {
  const { callers, callees, isCut } = around('f', [['main;a;f;x', 5], ['main;b;f;x', 3], ['main;b;f', 2], ['main;x', 7]]);
  assert.deepEqual(callers, { '': [10], ';f': [10], ';f;a': [5], ';f;a;main': [5], ';f;b': [5], ';f;b;main': [5] });
  assert.deepEqual(callees, { '': [10], ';f': [10], ';f;x': [8] });
  assert.equal(isCut, false);
});

test('recursion counts from the outermost call', () => {
  const { callers, callees } = around('f', [['main;f;g;f;h', 5], ['main;f', 2]]);
  assert.deepEqual(callers, { '': [7], ';f': [7], ';f;main': [7] });
  assert.deepEqual(callees, { '': [7], ';f': [7], ';f;g': [5], ';f;g;f': [5], ';f;g;f;h': [5] });
});

test('a comparison has two columns', () => {
  const { callers, callees } = around('f', [['main;f;x', 5]], [['main;f;y', 4], ['other;f', 1]]);
  assert.deepEqual(callers, { '': [5, 5], ';f': [5, 5], ';f;main': [5, 4], ';f;other': [0, 1] });
  assert.deepEqual(callees, { '': [5, 5], ';f': [5, 5], ';f;x': [5, 0], ';f;y': [0, 4] });
});

test('a function without weight has no callers', () => {
  const of = profile([['main;f', 3, 1], ['main', 2]]);
  const parts = sandwich(of.tree, of.weigh(ALL), fn(of, 'f'), of.functions.length);
  assert.deepEqual(paths(of, parts.callers), { '': [0] });
});
