import assert from 'node:assert/strict';
import test from 'node:test';
import { heaviestLine, lineWeights } from '../src/lines';
import { ALL, fn, profile } from './sample';

const of = profile([['main:9;f:3', 5], ['main:9;f:4', 2], ['main:8;f:3;f:3', 4], ['main:8;g', 1], ['main:8', 6, 1]]);

test('a line counts once for each stack', () => {
  const weights = lineWeights(of, ALL);
  assert.deepEqual([...weights.keys()].sort(), ['f.c', 'main.c']);
  const rows = (file: string) => weights.get(file)!.map(({ line, own, total }) => [line, own, total]).sort(([one], [other]) => one! - other!);
  assert.deepEqual(rows('main.c'), [[8, 0, 5], [9, 0, 7]]);
  assert.deepEqual(rows('f.c'), [[3, 9, 9], [4, 2, 2]]);
});

test('the heaviest line of a function is where its source opens', () => {
  assert.equal(heaviestLine(of, ALL, fn(of, 'main')), 9);
  assert.equal(heaviestLine(of, { ...ALL, event: 1 }, fn(of, 'main')), 8);
  assert.equal(heaviestLine(of, ALL, fn(of, 'g')), 0);
});
