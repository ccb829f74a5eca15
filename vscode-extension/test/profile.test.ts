/** Profiles: source files on this machine. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closest, ends, isSame } from '../src/views/profile/sources';

test('a relative name is the end of a path', () => {
  assert.ok(isSame('/home/a/src/main.c', '/home/a/src/main.c'));
  assert.ok(isSame('/home/a/src/main.c', './src/main.c'));
  assert.ok(isSame('/home/a/src/main.c', 'main.c'));
  assert.ok(!isSame('/home/a/src/domain.c', 'main.c'));
  assert.ok(!isSame('/home/a/src/main.c', '/src/main.c'));
  assert.ok(!isSame('/home/a/src/main.c', ''));
});

test('the closest file has the most last parts in common', () => {
  const paths = ['/w/other/main.c', '/w/src/lib/main.c', '/w/lib/main.c'];
  assert.equal(closest(paths, '/build/src/lib/main.c'), '/w/src/lib/main.c');
  assert.equal(closest(paths, 'main.c'), '/w/lib/main.c');
  assert.equal(closest(paths, '/build/other.c'), undefined);
  assert.equal(closest([], 'main.c'), undefined);
});

test('the ends of a path are inside a folder', () => {
  assert.deepEqual(ends('/build/src/main.c'), ['build/src/main.c', 'src/main.c', 'main.c']);
  assert.deepEqual(ends('./main.c'), ['main.c']);
  assert.deepEqual(ends('/build/../main.c'), []);
});
