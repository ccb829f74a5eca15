import assert from 'node:assert/strict';
import test from 'node:test';
import { describe } from '../src/describe';
import { changeOf } from '../src/diff';
import { bars, brushed, selectedRange, slid } from '../src/range';
import { ROOT } from '../src/tree';
import { formatChange, formatPercent, formatWeight } from '../src/units';
import { ALL, type Line, profile } from './sample';

test('weights are as on the command line', () => {
  assert.equal(formatWeight(1_500_000_000, 'nanoseconds'), '1.50 s');
  assert.equal(formatWeight(-20_000, 'nanoseconds'), '-20.00 us');
  assert.equal(formatWeight(0, 'nanoseconds'), '0 ns');
  assert.equal(formatWeight(1536, 'bytes'), '1.50 KiB');
  assert.equal(formatWeight(12, 'count'), '12');
  assert.equal(formatWeight(12, 'cycles'), '12 cycles');
  assert.equal(formatChange(12, 'count'), '+12');
  assert.equal(formatPercent(1, 3), '33.3%');
  assert.equal(formatPercent(1, 0), '-');
});

test('changes have words', () => {
  const change = (before: number, after: number) => {
    const { kind, text } = changeOf(before, after);
    return [kind, text];
  };
  assert.deepEqual(change(0, 5), ['new', 'new']);
  assert.deepEqual(change(5, 0), ['removed', 'removed']);
  assert.deepEqual(change(0, 0), ['same', 'same']);
  assert.deepEqual(change(10, 10 + 1e-12), ['same', 'same']);
  assert.deepEqual(change(10, 15), ['more', '+50%']);
  assert.deepEqual(change(1000, 955), ['less', '−4.5%']);
  assert.deepEqual([changeOf(2, 4).ratio, changeOf(4, 2).ratio, changeOf(0, 1).ratio, changeOf(1, 0).ratio], [0.5, -0.5, 1, -1]);
});

test('a frame is described by weights and neighbors', () => {
  const text = (node: number, isUpward: boolean, ...sides: Line[][]) => {
    const of = profile(...sides);
    const terms = { event: 'cpu', unit: 'count', functionName: (fn: number) => of.functionName(fn) };
    return describe(of.tree, of.weigh(ALL), node, terms, isUpward);
  };
  const lines: Line[] = [['main;f', 30], ['main', 10]];
  assert.equal(text(ROOT, false, lines), 'all: 40 (100.0%) of cpu');
  assert.equal(text(1, false, lines), 'main: total 40 (100.0%); own 10 (25.0%); depth 1');
  assert.equal(text(2, false, lines), 'f: total 30 (75.0%); own 30 (75.0%); depth 2; called by main');
  assert.equal(text(2, true, lines), 'f: total 30 (75.0%); depth 2; calls main');
  assert.equal(
    text(2, true, lines, [['main;f', 15], ['main', 45]]),
    'f: total 30 (75.0%) before, 15 (25.0%) after: −50%; depth 2; calls main',
  );
});

test('a brush selects whole intervals', () => {
  assert.deepEqual(brushed(10, 35, 100, 10), [1, 4]);
  assert.deepEqual(brushed(35, 10, 100, 10), [1, 4]);
  assert.deepEqual(brushed(50, 50, 100, 10), [5, 6]);
  assert.deepEqual(brushed(-5, 500, 100, 10), [0, 10]);
  assert.deepEqual(brushed(100, 100, 100, 10), [9, 10]);
  assert.deepEqual([slid(3, 5, 'from', 10), slid(5, 5, 'from', 10), slid(10, 10, 'from', 10)], [[3, 5], [5, 6], [9, 10]]);
  assert.deepEqual([slid(5, 4, 'to', 10), slid(0, 0, 'to', 10)], [[3, 4], [0, 1]]);
  assert.deepEqual([selectedRange([0, 10], 10), selectedRange([0, 9], 10)], [undefined, [0, 9]]);
  assert.deepEqual([...bars(Float64Array.of(1, 2, 3, 4), 2)], [3, 7]);
  assert.deepEqual([...bars(Float64Array.of(1, 2), 9)], [1, 2]);
});
