/** Lists: pages of calls, bars of a histogram, traces in folders, words in sources. */

import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import * as path from 'node:path';
import { test } from 'node:test';
import { locate } from '../src/debug/locate';
import { Summaries, summaryOf } from '../src/debug/summary';
import { ago, size, traceAt, tracesIn } from '../src/debug/traces';
import { mentions } from '../src/editor/words';
import { barsOf } from '../src/views/latency/histogram';
import { Pages } from '../src/views/pages';

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);

test('a list shows loaded items, and unloaded ranges from both ends', async () => {
  const pages = new Pages<number>(10);
  let asked = 0;
  const load = (page: number) =>
    pages.load(page, async () => {
      asked += 1;
      return { items: numbers(page * 10, Math.min(page * 10 + 10, 95)), total: 95 };
    });
  await Promise.all([load(0), load(0)]);
  assert.equal(asked, 1);
  assert.deepEqual(pages.slots().slice(-2), [{ item: 9, at: 9 }, { from: 10, to: 95, end: 'first' }]);
  await load(5);
  const gaps = () => pages.slots().filter((slot) => 'from' in slot);
  assert.deepEqual(gaps(), [{ from: 10, to: 50, end: 'first' }, { from: 10, to: 50, end: 'last' }, { from: 60, to: 95, end: 'first' }]);
  assert.deepEqual([pages.pageFor({ from: 10, to: 50, end: 'first' }), pages.pageFor({ from: 10, to: 50, end: 'last' })], [1, 4]);
  assert.equal(pages.at(53), 53);
  assert.equal(pages.at(20), undefined);
  await Promise.all([1, 2, 3, 4, 6, 7, 8, 9].map(load));
  assert.deepEqual(pages.slots().map((slot) => ('item' in slot ? slot.item : -1)), numbers(0, 95));
});

test('a failed page can be requested again', async () => {
  const pages = new Pages<number>(10);
  await assert.rejects(pages.load(0, async () => Promise.reject(new Error('no'))));
  await pages.load(0, async () => ({ items: [1], total: 1 }));
  assert.deepEqual(pages.slots(), [{ item: 1, at: 0 }]);
});

test('a list that was loaded in its middle can show its beginning', async () => {
  const pages = new Pages<number>(10);
  await pages.load(2, async () => ({ items: numbers(20, 30), total: 30 }));
  assert.deepEqual(pages.slots()[0], { from: 0, to: 20, end: 'last' });
});

test('bars are shares of the longest, without empty ends', () => {
  const bar = (calls: number, uncertain = 0) => ({ from: 0, to: 1, calls, uncertain });
  assert.deepEqual(barsOf([bar(0), bar(10, 5), bar(0), bar(20), bar(0)]).map(({ sure, unsure }) => [sure, unsure]), [[0.25, 0.25], [0, 0], [1, 0]]);
  assert.deepEqual(barsOf([]), []);
  assert.deepEqual(barsOf([bar(0)]), []);
});

test('traces are files and folders, newest first', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'backtrail-'));
  try {
    await writeFile(path.join(folder, 'old.btz'), 'x');
    await utimes(path.join(folder, 'old.btz'), 1000, 1000);
    await writeFile(path.join(folder, 'new.btz'), 'xy');
    await mkdir(path.join(folder, 'bundle'));
    await writeFile(path.join(folder, 'bundle', 'trace.json'), '{}');
    await utimes(path.join(folder, 'bundle', 'trace.json'), 2000, 2000);
    await mkdir(path.join(folder, 'other'));
    await mkdir(path.join(folder, 'folder.btz'));
    await writeFile(path.join(folder, 'note.txt'), '');
    assert.deepEqual((await tracesIn(folder)).map((trace) => path.basename(trace.path)), ['new.btz', 'bundle', 'old.btz']);
    assert.deepEqual(await tracesIn(path.join(folder, 'none')), []);
    assert.equal(await traceAt(path.join(folder, 'note.txt')), undefined);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('ages and sizes are formatted for people', () => {
  const minute = 60_000;
  assert.deepEqual([0, minute, 59 * minute, 60 * minute, 25 * 60 * minute].map((age) => ago(0, age)), ['just now', '1 minute ago', '59 minutes ago', '1 hour ago', '1 day ago']);
  assert.deepEqual([0, 1023, 1024, 10 * 2 ** 20, 300 * 2 ** 20].map(size), ['0 bytes', '1023 bytes', '1.0 KiB', '10.0 MiB', '300 MiB']);
});

test('the program is the setting’s, else the shipped one, else the first on PATH', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'backtrail-'));
  try {
    const program = path.join(folder, 'backtrail');
    assert.ok('problem' in (await locate('', { PATH: folder })));
    await writeFile(program, '');
    assert.ok('problem' in (await locate(program, {})));
    await chmod(program, 0o755);
    assert.deepEqual(await locate('', { PATH: `relative:${folder}` }), { path: program });
    assert.deepEqual(await locate(program, {}), { path: program });
    assert.deepEqual(await locate('~/backtrail', { HOME: folder }), { path: program });
    assert.ok('problem' in (await locate('backtrail', { PATH: folder })));
    assert.ok('problem' in (await locate(folder, {})));
    assert.ok('problem' in (await locate('', {})));
    const shipped = path.join(folder, 'bin');
    assert.deepEqual(await locate('', { PATH: folder }, shipped), { path: program });
    await mkdir(shipped);
    await writeFile(path.join(shipped, 'backtrail'), '', { mode: 0o755 });
    assert.deepEqual(await locate('', { PATH: folder }, shipped), { path: path.join(shipped, 'backtrail') });
    assert.deepEqual(await locate(program, {}, shipped), { path: program });
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('variable names are found where they are variables', () => {
  const source = ['int f(int a, char *b)', '  a = a + s.a + p->a; // a', '  puts("a b"); b = \'a\';', '  a1 = _a; /* a */ b++;', ' * a of a comment', '  x[0..a]'];
  const found = mentions((line) => source[line] ?? '', 0, source.length - 1, new Set(['a', 'b']));
  assert.deepEqual(found.map(({ line, from, name }) => [line, from, name]), [[0, 10, 'a'], [0, 19, 'b'], [1, 2, 'a'], [2, 15, 'b'], [3, 19, 'b'], [5, 7, 'a']]);
});

const CRASH = JSON.stringify({
  command: 'crash',
  ok: true,
  result: {
    kind: 'crash',
    signal: 'SIGABRT (aborted)',
    stack: { frames: [{ function: 'abort', library: 'libc.so.6' }, { function: 'close_account' }] },
  },
});

test('a summary names the signal and the innermost function that is not of a library', () => {
  assert.equal(summaryOf(`{"schema":"backtrail-debug/1"}\n${CRASH}\n`), 'SIGABRT in close_account');
  assert.equal(summaryOf(CRASH.replace(',{"function":"close_account"}', '')), 'SIGABRT in abort');
  assert.equal(summaryOf(CRASH.replaceAll('"function"', '"pc"')), 'SIGABRT');
  for (const other of ['', 'no JSON', '{"ok":true,"result":{"kind":"stop"}}', CRASH.replace('true', 'false'), '[]', 'null']) {
    assert.equal(summaryOf(other), undefined, other);
  }
});

test('summaries are read once for each version of a trace', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'backtrail-test-'));
  try {
    const program = path.join(folder, 'backtrail');
    const count = path.join(folder, 'count');
    await writeFile(program, `#!/bin/sh\necho x >> '${count}'\ncat <<'END'\n${CRASH}\nEND\n`);
    await chmod(program, 0o755);
    const kept = new Map<string, unknown>();
    const memory = { get: (key: string) => kept.get(key), update: async (key: string, value: unknown) => void kept.set(key, value) };
    const stop = new AbortController();
    const of = (written: number) => new Summaries(memory).of(program, { path: '/x.bundle', written }, stop.signal);
    for (const written of [1, 1, 2, 1]) {
      assert.equal(await of(written), 'SIGABRT in close_account');
    }
    assert.equal(await readFile(count, 'utf8'), 'x\nx\n');
    stop.abort();
    assert.equal(await of(3), undefined);
    kept.set('backtrail.summaries', 'of another version');
    assert.equal(await new Summaries(memory).of('/no/such/program', { path: '/x', written: 1 }, new AbortController().signal), undefined);
  } finally {
    await rm(folder, { recursive: true });
  }
});
