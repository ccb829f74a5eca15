import assert from 'node:assert/strict';
import test from 'node:test';
import { Layout } from '../src/layout';
import { ROOT } from '../src/tree';
import { between } from '../src/zoom';
import { ALL, type Line, profile } from './sample';

/** Many small frames in three levels. */
const LINES: Line[] = Array.from({ length: 900 }, (_, at) => [`a${at % 3};b${at % 30};c${at}`, 1 + (at % 7)]);

test('a zoom begins and ends at its frames', () => {
  const [start, end] = [{ from: 0, size: 100 }, { from: 40, size: 10 }];
  assert.deepEqual(between(start, end, 0), start);
  assert.deepEqual(between(start, end, 1), end);
  assert.deepEqual(between({ from: 0, size: 0 }, end, 0.5), end);
  for (let time = 0; time <= 1; time += 0.1) {
    const { from, size } = between(start, end, time);
    // The part never leaves the larger one, and contains the smaller one.
    assert(from >= 0 && from <= 40 && from + size >= 50 && from + size <= 100.001, `${time}: ${from} ${size}`);
  }
  const beside = between({ from: 0, size: 10 }, { from: 50, size: 10 }, 0.5);
  assert(beside.from > 0 && beside.from < 50 && beside.size === 10);
});

test('the boxes of a frame are those of its part', () => {
  const of = profile(LINES);
  const layout = new Layout(of.tree, of.weigh(ALL));
  const key = ({ node, row, left, width }: { node: number; row: number; left: number; width: number }) =>
    `${node} ${row} ${left.toFixed(6)} ${width.toFixed(6)}`;
  for (const zoom of [ROOT, 1, of.tree.callees[of.tree.first[1]!]!]) {
    const wanted = layout.boxes(zoom, 400).map(key).sort();
    assert.deepEqual(layout.boxesIn(layout.spanOf(zoom), 400).map(key).sort(), wanted);
  }
});

test('boxes of a part are within the width', () => {
  const of = profile(LINES);
  const layout = new Layout(of.tree, of.weigh(ALL));
  const boxes = layout.boxesIn({ from: 333, size: 77.5 }, 400);
  assert(boxes.length > 10);
  for (const { left, width } of boxes) {
    assert(left >= 0 && width >= 0.5 - 1e-9 && left + width <= 400 + 1e-9);
  }
  assert.deepEqual(layout.boxesIn({ from: 0, size: 0 }, 400), []);
});
