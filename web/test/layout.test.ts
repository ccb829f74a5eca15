import assert from 'node:assert/strict';
import test from 'node:test';
import { directionOf, walk } from '../src/keyboard';
import { Layout } from '../src/layout';
import { ROOT } from '../src/tree';
import { ALL, type Line, profile } from './sample';

function laidOut(...sides: Line[][]) {
  const of = profile(...sides);
  const layout = new Layout(of.tree, of.weigh(ALL));
  const name = (node: number) => of.functionName(of.tree.functions[node]!).name;
  const boxes = (zoom: number, width: number) =>
    layout.boxes(zoom, width).map(({ node, row, left, width }) => [name(node), row, left, width]);
  const node = (wanted: string) => [...of.tree.functions.keys()].find((at) => name(at) === wanted)!;
  return { of, layout, name, boxes, node };
}

const LINES: Line[] = [['main;small', 1], ['main;big;leaf', 6], ['main;big', 2], ['main', 1]];

test('callees are below their callers, the largest first', () => {
  const { boxes } = laidOut(LINES);
  assert.deepEqual(boxes(ROOT, 100), [
    ['all', 0, 0, 100], ['main', 1, 0, 100], ['small', 2, 80, 10], ['big', 2, 0, 80], ['leaf', 3, 0, 60],
  ]);
});

test('a zoomed frame and its callers have the whole width', () => {
  const { boxes, node } = laidOut(LINES);
  assert.deepEqual(boxes(node('big'), 100), [['all', 0, 0, 100], ['main', 1, 0, 100], ['big', 2, 0, 100], ['leaf', 3, 0, 75]]);
});

test('frames below half a pixel are not drawn', () => {
  const many: Line[] = Array.from({ length: 1000 }, (_, at) => [`main;f${at}`, 1]);
  const drawn = (width: number) => laidOut(many).boxes(ROOT, width).length;
  assert.equal(drawn(500), 1002);
  assert.equal(drawn(499), 2);
  const { boxes } = laidOut([['main;wide', 1000], ['main;thin', 1]]);
  assert.deepEqual(boxes(ROOT, 400).map(([name]) => name), ['all', 'main', 'wide']);
});

test('the frame at a pixel is found', () => {
  const { layout, name, node } = laidOut(LINES);
  const at = (zoom: number, x: number, row: number) => {
    const found = layout.at(zoom, 100, x, row);
    return found === undefined ? undefined : name(found);
  };
  assert.deepEqual([0, 79, 81, 89, 91].map((x) => at(ROOT, x, 2)), ['big', 'big', 'small', 'small', undefined]);
  assert.deepEqual([at(ROOT, 30, 3), at(ROOT, 70, 3), at(ROOT, 70, 9), at(ROOT, 1, -1)], ['leaf', undefined, undefined, undefined]);
  assert.deepEqual([at(node('big'), 74, 3), at(node('big'), 76, 3), at(node('big'), 99, 1)], ['leaf', undefined, 'main']);
});

test('negative and missing weights have no width', () => {
  const { boxes } = laidOut([['main;less', -5], ['main;more', 5]]);
  assert.deepEqual(boxes(ROOT, 10).map(([name, , , width]) => [name, width]), [['all', 10], ['main', 10], ['more', 10]]);
  assert.deepEqual(laidOut([]).boxes(ROOT, 10), []);
});

test('a comparison shows frames of either profile', () => {
  const { boxes } = laidOut([['main;old', 4], ['main;same', 4]], [['main;new', 2], ['main;same', 3]]);
  assert.deepEqual(boxes(ROOT, 100).map(([name, , , width]) => [name, width]), [
    ['all', 100], ['main', 100], ['new', 20], ['same', 40], ['old', 40],
  ]);
});

test('arrow keys walk the drawn frames', () => {
  const { of, layout, name, node } = laidOut([...LINES, ['other;deep', 3]]);
  const boxes = layout.boxes(ROOT, 100);
  const go = (from: string, key: string, isUpward = false) =>
    name(walk(boxes, (at) => of.tree.caller[at]!, from === 'all' ? ROOT : node(from), directionOf(key, isUpward)!));
  assert.equal(go('all', 'ArrowDown'), 'main');
  assert.equal(go('main', 'ArrowDown'), 'big');
  assert.equal(go('big', 'ArrowRight'), 'small');
  assert.equal(go('small', 'ArrowRight'), 'deep');
  assert.equal(go('deep', 'ArrowLeft'), 'small');
  assert.equal(go('big', 'ArrowLeft'), 'big');
  assert.equal(go('leaf', 'ArrowDown'), 'leaf');
  assert.equal(go('leaf', 'ArrowUp'), 'big');
  assert.equal(go('all', 'ArrowUp'), 'all');
  assert.equal(go('big', 'ArrowUp', true), 'leaf');
  assert.equal(directionOf('x', false), undefined);
});

test('100 000 stacks are laid out once and drawn in a moment', () => {
  const lines: Line[] = [];
  for (let at = 0; at < 100_000; at += 1) {
    lines.push([`main;a${at % 10};b${at % 1000};c${at}`, 1 + (at % 7)]);
  }
  const { layout } = laidOut(lines);
  const began = performance.now();
  for (let turn = 0; turn < 10; turn += 1) {
    assert(layout.boxes(ROOT, 1400).length < 1400 * 2 * 5);
  }
  // A generous bound: a walk over all frames at each drawing takes longer.
  assert(performance.now() - began < 1000);
});
