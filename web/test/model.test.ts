import assert from 'node:assert/strict';
import test from 'node:test';
import { FORMAT, parse } from '../src/data';
import { type Order, pressed, sorted } from '../src/table';
import { totals } from '../src/totals';
import { ROOT } from '../src/tree';
import { ALL, type Line, profile } from './sample';

/** Returns name, own and total weights, in the order of a table. */
function rows(of: ReturnType<typeof profile>, selection = ALL, order: Order = { key: 'own', isAscending: false }) {
  const found = totals(of.tree, of.weigh(selection));
  return sorted(found, order, of.functions, undefined).map(({ fn, own, total }) => [of.functionName(fn).name, ...own, ...total]);
}

const RECURSIVE: Line[] = [['main;f;g;f;h', 5], ['main;f', 2], ['main;g', 1]];

test('a recursive function counts once', () => {
  assert.deepEqual(rows(profile(RECURSIVE)), [['h', 5, 5], ['f', 2, 7], ['g', 1, 6], ['main', 0, 8]]);
});

test('a selection has one event and one range of time', () => {
  const of = profile([['a', 1, 0, 0], ['a', 2, 0, 4], ['b', 4, 0, 5], ['b', 8, 1, 4], ['c', 16]]);
  assert.deepEqual(rows(of), [['c', 16, 16], ['b', 4, 4], ['a', 3, 3]]);
  assert.deepEqual(rows(of, { ...ALL, range: [4, 6] }), [['b', 4, 4], ['a', 2, 2]]);
  assert.deepEqual(rows(of, { ...ALL, range: [4, 5] }), [['a', 2, 2]]);
  assert.deepEqual(rows(of, { ...ALL, event: 1 }), [['b', 8, 8]]);
  assert.deepEqual([...of.histogram(0)], [1, 0, 0, 0, 2, 4, 0, 0, 0, 0]);
});

test('a stack without frames counts in the total', () => {
  const of = profile([['', 3], ['main', 4]]);
  assert.equal(of.weigh(ALL).total[0]![ROOT], 7);
  assert.equal(of.weigh(ALL).own[0]![ROOT], 3);
});

test('the second profile is scaled to the total of the first', () => {
  const of = profile([['main;f', 10], ['main;g', 10]], [['main;f', 30], ['main;h', 10]]);
  assert.deepEqual(rows(of), [['f', 10, 30, 10, 30], ['g', 10, 0, 10, 0], ['h', 0, 10, 0, 10], ['main', 0, 0, 20, 40]]);
  const scaled = rows(of, { ...ALL, normalize: true }, { key: 'change', isAscending: false });
  assert.deepEqual(scaled, [['g', 10, 0, 10, 0], ['f', 10, 15, 10, 15], ['h', 0, 5, 0, 5], ['main', 0, 0, 20, 20]]);
  assert.equal(profile([['a', 3]], [['a', 0]]).weigh({ ...ALL, normalize: true }).total[1]![ROOT], 0);
});

test('rows are in the order of a column', () => {
  const by = (order: Order) => rows(profile(RECURSIVE), ALL, order).map(([name]) => name);
  assert.deepEqual(by({ key: 'total', isAscending: false }), ['main', 'f', 'g', 'h']);
  assert.deepEqual(by({ key: 'own', isAscending: true }), ['main', 'g', 'f', 'h']);
  assert.deepEqual(by({ key: 'name', isAscending: true }), ['f', 'g', 'h', 'main']);
  assert.deepEqual(pressed({ key: 'own', isAscending: false }, 'own'), { key: 'own', isAscending: true });
  assert.deepEqual(pressed({ key: 'own', isAscending: false }, 'name'), { key: 'name', isAscending: true });
});

test('data of another version are refused', () => {
  assert.throws(() => parse('{"format": "other/2"}'), /format other\/2, and this page reads backtrail-profile-view\/1/);
  assert.equal(parse(JSON.stringify({ format: FORMAT, names: ['a'] })).names[0], 'a');
  const odd = parse(JSON.stringify({ format: FORMAT, strings: ['f\u202egpj', 'é\n\u2028', '操作'] }));
  assert.deepEqual(odd.strings, ['f⟨U+202E⟩gpj', 'é⟨U+000A⟩⟨U+2028⟩', '操作']);
});
