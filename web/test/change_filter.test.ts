import assert from 'node:assert/strict';
import test from 'node:test';
import { type ChangeFilter, shownCallees, shownNodes } from '../src/change_filter';
import { changeKind, changeOf } from '../src/diff';
import { ROOT } from '../src/tree';
import { ALL, type Line, profile } from './sample';

const BEFORE: Line[] = [['main;parse;copy', 30], ['main;parse', 20], ['main;old', 50], ['main;same', 5]];
const AFTER: Line[] = [['main;parse;copy', 30], ['main;parse', 60], ['main;log;write', 10], ['main;same', 5]];

/** Returns the shown paths, with a star after those that the filter wants. */
function shown(filter: ChangeFilter, ...sides: Line[][]): string[] {
  const of = profile(...sides);
  const weights = of.weigh(ALL);
  const nodes = shownNodes(of.tree, weights, filter);
  const path = (node: number): string => {
    const name = of.functionName(of.tree.functions[node]!).name;
    return of.tree.caller[node] === ROOT ? name : `${path(of.tree.caller[node]!)};${name}`;
  };
  const rows: string[] = [];
  const visit = (node: number) => {
    for (const callee of shownCallees(of.tree, weights, nodes, node)) {
      rows.push(`${path(callee)}${nodes[callee] === 2 ? '*' : ''}`);
      visit(callee);
    }
  };
  visit(ROOT);
  return rows;
}

test('filters show the wanted nodes and their callers', () => {
  assert.deepEqual(shown('new', BEFORE, AFTER), ['main', 'main;log*', 'main;log;write*']);
  assert.deepEqual(shown('removed', BEFORE, AFTER), ['main', 'main;old*']);
  assert.deepEqual(shown('more', BEFORE, AFTER), ['main', 'main;parse*']);
  assert.deepEqual(shown('less', [['a', 5]], [['a', 3]]), ['a*']);
  assert.deepEqual(shown('changed', BEFORE, AFTER), ['main', 'main;old*', 'main;parse*', 'main;log*', 'main;log;write*']);
});

test('the largest change comes first', () => {
  const all = shown('all', BEFORE, AFTER);
  assert.deepEqual(all, ['main*', 'main;old*', 'main;parse*', 'main;parse;copy*', 'main;log*', 'main;log;write*', 'main;same*']);
});

test('without a comparison the largest weight comes first', () => {
  assert.deepEqual(shown('all', [['a', 1], ['b;c', 5], ['b', 1]]), ['b*', 'b;c*', 'a*']);
});

test('kinds of changes agree with their texts', () => {
  for (const [before, after, kind] of [[0, 3, 'new'], [3, 0, 'removed'], [3, 3, 'same'], [0, 0, 'same'], [2, 3, 'more'], [3, 2, 'less']] as const) {
    assert.equal(changeKind(before, after), kind);
    assert.equal(changeOf(before, after).kind, kind);
  }
});
