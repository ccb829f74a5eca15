/** The bookmarks file. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { difference, emptyMarks, marksOf, merged, nameProblem, parseMarks, printMarks, withMarks } from '../src/bookmarks/file';

const MARKS = [
  { name: 'the cause', position: 't12#345', note: 'line 72 keeps the orders' },
  { name: 'before', position: 't12#-120' },
];

test('a written file reads the same', () => {
  const file = withMarks(withMarks(emptyMarks(), 'id2', 'b.btz', MARKS), 'id1', 'a.btz', MARKS.slice(1));
  const parsed = parseMarks(printMarks(file));
  assert.ok('file' in parsed);
  assert.deepEqual(parsed.file, file);
  assert.deepEqual(marksOf(parsed.file, 'id2'), MARKS);
  assert.deepEqual(marksOf(parsed.file, 'toString'), []);
  assert.equal(printMarks(parsed.file), printMarks(file));
  assert.deepEqual(Object.keys(file.traces), ['id1', 'id2']);
});

test('a trace without bookmarks is removed from the file', () => {
  const file = withMarks(withMarks(emptyMarks(), 'id', 'a.btz', MARKS), 'id', 'a.btz', []);
  assert.deepEqual(file, emptyMarks());
  assert.deepEqual(JSON.parse(printMarks(file)), { version: 1, traces: {} });
});

test('other files than bookmarks are refused', () => {
  for (const text of ['{', '[]', 'null', '{}', '{"version":2,"traces":{}}', '{"version":1}', '{"version":1,"traces":[]}', '{"version":1,"traces":{"a":{}}}',
    '{"version":1,"traces":{"a":{"bookmarks":[{"name":"x"}]}}}', '{"version":1,"traces":{"a":{"bookmarks":["x"]}}}']) {
    assert.ok('problem' in parseMarks(text), text);
  }
  assert.deepEqual(parseMarks(' \n'), { file: emptyMarks() });
});

test('a trace may have any name', () => {
  const parsed = parseMarks('{"version":1,"traces":{"__proto__":{"bookmarks":[{"name":"x","position":"#1"}]}}}');
  assert.ok('file' in parsed);
  assert.equal(({} as { bookmarks?: unknown }).bookmarks, undefined);
  assert.equal(marksOf(parsed.file, '__proto__').length, 1);
});

test('notes survive an update, and configured bookmarks are not stored', () => {
  const current = [{ name: 'the cause', position: 't12#346' }, { name: 'new', position: 't12#1' }, { name: 'given', position: 't12#2' }];
  assert.deepEqual(merged(MARKS, current, [{ name: 'given', position: 't12#2' }]), [
    { name: 'the cause', position: 't12#346', note: 'line 72 keeps the orders' },
    { name: 'new', position: 't12#1' },
  ]);
});

test('a difference has bookmarks to remove and to set', () => {
  assert.deepEqual(difference(MARKS, MARKS), { remove: [], set: [] });
  assert.deepEqual(difference(MARKS, [{ name: 'before', position: 't12#7' }, { name: 'x', position: '#1' }]), {
    remove: ['the cause'],
    set: [{ name: 'before', position: 't12#7' }, { name: 'x', position: '#1' }],
  });
});

test('names with the form of positions are refused', () => {
  for (const name of ['', '  ', 'start', 'crash', 'end', '#12', '@-1ms', 't12#3', 'c17', 'a\nb', 'x'.repeat(201), 'taken']) {
    assert.notEqual(nameProblem(name, ['taken']), undefined, name);
  }
  for (const name of ['cause', 'the cause', 'crash 2', 'Übergang', 'cache']) {
    assert.equal(nameProblem(name, ['taken']), undefined, name);
  }
});
