import assert from 'node:assert/strict';
import test from 'node:test';
import { compile, matchedWeight, matching } from '../src/search';
import { ALL, type Line, profile } from './sample';

const LINES: Line[] = [['main;Parse;copy', 6], ['main;copy;Parse;copy', 3], ['main;idle', 1]];

function share(pattern: string, ...sides: Line[][]) {
  const of = profile(...sides);
  return matchedWeight(of.tree, of.weigh(ALL), matching(of.functions, compile(pattern)));
}

test('a stack with several matches counts once', () => {
  assert.deepEqual(share('copy', LINES), [9]);
  assert.deepEqual(share('copy|parse', LINES), [9]);
  assert.deepEqual(share('^(main|idle)$', LINES), [10]);
  assert.deepEqual(share('nothing', LINES), [0]);
});

test('each profile of a comparison has its share', () => {
  assert.deepEqual(share('idle', LINES, [['main;idle', 7], ['main', 2]]), [1, 7]);
});

test('patterns without capitals match any case', () => {
  const matches = (pattern: string) => compile(pattern).test('std::Vec::Push');
  assert.deepEqual(['vec', 'Vec', 'VEC', '\\Wvec', 'vec\\Spush'].map(matches), [true, true, false, true, false]);
});

test('files and modules match, and a wrong pattern is an error', () => {
  const functions = [{ name: 'f', file: 'src/a.c', module: 'libc.so' }, { name: 'g', file: '', module: '' }];
  assert.deepEqual(matching(functions, compile('a\\.c$')), [true, false]);
  assert.deepEqual(matching(functions, compile('^libc')), [true, false]);
  assert.throws(() => compile('('));
});
