// The requests of our own. Every response is checked against docs/dap.md.
'use strict';

const assert = require('node:assert/strict');
const { Client, clients } = require('./lib/client');
const { file, line } = require('./lib/source');

describe('of our own requests', () => {
  const client = clients(() => ({ bundle: process.env.LEDGER }));
  const { it } = client;
  const ask = (name, args = {}) => client().ask(`backtrail/${name}`, args);

  it('trace describes the trace', async () => {
    const trace = await ask('trace');
    assert.match(trace.program, /ledger/);
    assert.equal(trace.crash.threadId, client().threadId);
    assert.equal(trace.crash.signal, 'SIGSEGV');
    assert.equal(trace.isPartial, false);
    assert.deepEqual(await ask('trace'), trace);
  });

  it('where returns the position', async () => {
    const where = await ask('where');
    assert.equal(where.threadId, client().threadId);
    assert.match(where.function, /^post/);
    assert.ok(where.file.endsWith('ledger.c'));
    assert.equal(where.line, line('ledger.c', 'account->balance += amount;'));
    assert.match(where.end, /^at the crash: .*SIGSEGV/);
    assert.equal(where.time.uncertainty === undefined || where.time.uncertainty >= 0, true);
  });

  it('calls go from the outermost to the innermost, in pages', async () => {
    const roots = await ask('calls');
    assert.equal(roots.total, roots.calls.length);
    const { path } = await ask('callPath');
    const names = path.map((call) => call.function);
    // An inlined function is not a call.
    assert.deepEqual(names.filter((name) => name !== 'post').slice(-2), ['main', 'end_of_day']);
    assert.equal(path[0].call, roots.calls.find(({ around }) => around).call);
    const main = path.find((call) => call.function === 'main');
    const all = await ask('calls', { parent: main.call });
    assert.equal(all.total, main.children);
    assert.ok(all.calls.some((call) => call.function === 'apply'));
    assert.deepEqual(
      all.calls.map(({ number }) => number),
      all.calls.map((_, at) => at),
    );
    assert.equal(all.calls.filter(({ around }) => around).length, 1);
    const page = await ask('calls', { parent: main.call, start: 3, count: 2 });
    assert.deepEqual(page.calls, all.calls.slice(3, 5));
    assert.equal(page.total, all.total);
    assert.ok(await client().refused('backtrail/calls', { parent: 'c99999999' }));
  });

  it('timeline stays within the requested range', async () => {
    const whole = await ask('timeline', { width: 200, depth: 4 });
    assert.equal(whole.threads.length, 1);
    assert.ok(whole.begin <= whole.from && whole.from < whole.to && whole.to <= whole.end);
    assert.equal(whole.crash.signal, 'SIGSEGV');
    const [thread] = whole.threads;
    assert.ok(thread.current && thread.crashed && thread.timed);
    assert.ok(thread.calls.length > 0 && thread.calls.every(({ level }) => level < 4));
    assert.ok(thread.calls.length <= 4 * 201, `${thread.calls.length} calls`);
    const middle = (whole.from + whole.to) / 2;
    const half = await ask('timeline', { from: middle, to: whole.to, width: 100 });
    assert.ok(half.from >= middle - 1 && half.to <= whole.to + 1);
    for (const { from, to } of half.threads[0].states) {
      assert.ok(from <= to);
    }
    for (const args of [{ from: 5, to: 5 }, { from: 10, to: -10 }, { width: 0 }, { width: 2 ** 40 }, { depth: -1 }]) {
      await client().request('backtrail/timeline', args);
    }
  });

  it('latency counts every call', async () => {
    const latency = await ask('latency', { function: 'settle' });
    assert.equal(latency.function, 'settle');
    assert.equal(latency.calls, latency.measured + latency.unmeasured.reduce((sum, { calls }) => sum + calls, 0));
    const counted = latency.histogram.reduce((sum, { calls }) => sum + calls, 0);
    assert.equal(counted, latency.measured);
    const rows = await ask('latency', { function: 'settle', instructions: true, sort: 'length' });
    assert.equal(rows.unit, 'instructions');
    const lengths = rows.rows.map(({ length }) => length.most);
    assert.ok(lengths.length > 1);
    assert.deepEqual(
      lengths,
      lengths.toSorted((a, b) => b - a),
    );
    const page = await ask('latency', { function: 'settle', instructions: true, sort: 'length', start: 1, count: 1 });
    assert.deepEqual(page.rows, rows.rows.slice(1, 2));
    assert.ok(await client().refused('backtrail/latency', { function: 'no_such_function' }));
  });

  it('compare lists the differences of two calls', async () => {
    const { rows } = await ask('latency', { function: 'settle', instructions: true, sort: 'length' });
    const calls = [rows[0].position, rows.at(-1).position];
    const { text } = await ask('compare', { calls });
    assert.match(text, /settle/);
    assert.ok(await client().refused('backtrail/compare', { calls: ['c1'] }));
  });

  it('bookmarks are set, visited, and removed', async () => {
    assert.deepEqual(await ask('bookmarks'), { bookmarks: [] });
    const { position } = await ask('where');
    const begin = { name: 'begin', position: position.replace(/#.*/, '#0') };
    const here = { name: 'here', position };
    const changed = client().event('backtrail/bookmarksChanged');
    const { bookmarks } = await ask('bookmarks', { set: [begin, here] });
    assert.deepEqual(bookmarks, [begin, here]);
    assert.deepEqual((await changed).bookmarks, bookmarks);
    await client().move('backtrail/goto', { to: 'begin' });
    assert.match((await ask('where')).position, /#0$/);
    await client().move('backtrail/goto', { to: 'here' });
    assert.equal((await ask('where')).position, position);
    const after = await ask('bookmarks', { remove: ['begin', 'nothing'] });
    assert.deepEqual(after.bookmarks, [here]);
    // References that an editor kept from an earlier session.
    const other = await new Client().start();
    await other.launch({ bundle: process.env.LEDGER, bookmarks: [begin, here] });
    assert.deepEqual((await other.ask('backtrail/bookmarks', {})).bookmarks, [begin, here]);
    await other.end();
  });

  it('functions are found by a part of their names', async () => {
    const { functions } = await ask('functions', { filter: 'sett' });
    const settle = functions.find(({ name }) => name === 'settle');
    assert.ok(settle.file.endsWith('ledger.c'));
    assert.ok(settle.line > 0);
    assert.ok(functions.every(({ name }) => name.toLowerCase().includes('sett')));
    const few = await ask('functions', { count: 2 });
    assert.equal(few.functions.length, 2);
    assert.equal(few.more, true);
    assert.deepEqual(await ask('functions', { filter: 'no_such_function' }), { functions: [], more: false });
  });

  it('coverage counts the executions of lines', async () => {
    const { lines } = await ask('coverage', { path: file('ledger.c') });
    const of = (text) => lines.find((one) => one.line === line('ledger.c', text))?.executions;
    const { result } = await client().ask('evaluate', { expression: 'count settle', context: 'repl' });
    assert.equal(of('if (account->balance < account->minimum)'), Number(/(\d+) call/.exec(result)[1]));
    assert.equal(of('puts("the day is closed");') ?? 0, 0);
    const other = await client().request('backtrail/coverage', { path: '/nowhere/else.c' });
    assert.ok(!other.success || other.body.lines.length === 0);
  });

  it('locals are those of a frame', async () => {
    const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
    const locals = await ask('locals', { frameId: stackFrames[0].id });
    assert.equal(locals.path, file('ledger.c'));
    assert.deepEqual(
      locals.variables.map(({ name, value, unknown }) => [name, value, unknown]),
      [
        ['account', '0x0', false],
        ['amount', '-10', false],
      ],
    );
    assert.ok(await client().refused('backtrail/locals', { frameId: 123456789 }));
  });

  it('just-my-code is read, set and reported', async () => {
    assert.deepEqual(await ask('justMyCode'), { enabled: true });
    const changed = client().event('backtrail/justMyCodeChanged');
    assert.deepEqual(await ask('justMyCode', { enabled: false }), { enabled: false });
    assert.deepEqual(await changed, { enabled: false });
    const again = client().event('backtrail/justMyCodeChanged');
    await client().ask('evaluate', { expression: 'set just-my-code on', context: 'repl' });
    assert.deepEqual(await again, { enabled: true });
    const other = await new Client().start();
    await other.launch({ bundle: process.env.LEDGER, justMyCode: false });
    assert.deepEqual(await other.ask('backtrail/justMyCode', {}), { enabled: false });
    await other.end();
  });

  it('errors of our own requests are shown by the client alone, and so once', async () => {
    const failed = async (command, args) => (await client().request(command, args)).body.error;
    const own = [
      ['backtrail/goto', { to: 'no_such_place' }],
      ['backtrail/runToCall', { function: 'no_such_function', direction: 'backward' }],
      ['backtrail/latency', { function: 'no_such_function' }],
    ];
    for (const [command, args] of own) {
      const { format, showUser } = await failed(command, args);
      assert.ok(format.length > 10, command);
      assert.equal(showUser, false, command);
    }
    // VS Code sends the standard requests, and shows an error only if it is asked to.
    const standard = await failed('stackTrace', { threadId: 999_999 });
    assert.equal(standard.showUser, true, JSON.stringify(standard));
  });

  it('requests without their arguments are refused', async () => {
    for (const name of ['goto', 'runToCall', 'latency', 'compare', 'coverage']) {
      assert.ok(await client().refused(`backtrail/${name}`, {}), name);
    }
  });
});
