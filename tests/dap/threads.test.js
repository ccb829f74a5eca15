// Several threads: requests about other threads than the current one, and their moves.
'use strict';

const assert = require('node:assert/strict');
const { clients } = require('./lib/client');
const { line } = require('./lib/source');

describe('of several threads', () => {
  const client = clients(() => ({ bundle: process.env.THREADS }));
  const { it } = client;

  const go = (command, more) => client().move(command, { threadId: client().threadId, ...more });
  const where = async () => (await client().ask('backtrail/where')).position;
  const stopped = () => client().messages.filter(({ event }) => event === 'stopped').length;
  const repl = (expression, frameId) => client().ask('evaluate', { expression, context: 'repl', frameId });

  async function others() {
    const { threads } = await client().ask('threads');
    return threads.map(({ id }) => id).filter((id) => id !== client().threadId);
  }

  it('a command in another thread that does not move changes nothing', async () => {
    const before = await where();
    const stops = stopped();
    for (const id of await others()) {
      const frame = await client().frame(id);
      assert.match((await repl('info registers rip', frame.id)).result, /^rip/);
      assert.equal(await where(), before);
      await client().refused('evaluate', { expression: 'goto nosuch', context: 'repl', frameId: frame.id });
      await client().refused('backtrail/runToCall', { function: 'no_such_function', threadId: id });
      assert.equal(await where(), before);
      // The frame is still valid.
      assert.ok((await client().ask('scopes', { frameId: frame.id })).scopes.length > 0);
    }
    assert.equal(stopped(), stops);
  });

  it('a command in another thread that moves sends a stop', async () => {
    const [id] = await others();
    const frame = await client().frame(id);
    const stop = client().event('stopped');
    await repl('reverse-stepi', frame.id);
    assert.equal((await stop).threadId, id);
    assert.ok((await where()).startsWith(`t${id}#`));
  });

  it('a command that goes to a position sends a stop', async () => {
    const stop = client().event('stopped');
    await repl('goto start');
    assert.equal((await stop).reason, 'goto');
  });

  it('a thread that has not begun has no values', async () => {
    const { threads } = await client().ask('threads');
    const main = Math.min(...threads.map(({ id }) => id));
    await client().move('backtrail/goto', { to: `t${main}#0` });
    let looked = 0;
    for (const { id } of threads.filter(({ id }) => id !== main)) {
      const { stackFrames } = await client().ask('stackTrace', { threadId: id });
      if (stackFrames[0].presentationHint === 'label') {
        looked++;
        const frameId = stackFrames[0].id;
        assert.deepEqual((await client().ask('scopes', { frameId })).scopes, []);
        await client().refused('evaluate', { expression: '$rip', context: 'watch', frameId });
      }
    }
    assert.ok(looked > 0);
  });

  it('goto targets belong to the requested thread', async () => {
    const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
    const { source } = stackFrames.find((frame) => frame.source);
    const waits = line('thread_crash.c', 'while (!ready)');
    const { targets } = await client().ask('gotoTargets', { source, line: waits });
    const [{ id: targetId }] = targets;
    const [other] = await others();
    assert.match(await client().refused('goto', { threadId: other, targetId }), /belongs to thread/);
    for (const wrong of [0, targetId + 1000, -1]) {
      await client().refused('goto', { threadId: client().threadId, targetId: wrong });
    }
    assert.equal((await go('goto', { targetId })).reason, 'goto');
  });

  it('only the crashed thread has the exception', async () => {
    assert.equal((await client().ask('exceptionInfo', { threadId: client().threadId })).exceptionId, 'SIGSEGV');
    for (const threadId of [...(await others()), 999999]) {
      await client().refused('exceptionInfo', { threadId });
    }
  });

  it('continue stops in any thread, unless it is bound to one', async () => {
    const crashed = client().threadId;
    await client().ask('setFunctionBreakpoints', { breakpoints: [{ name: 'main' }] });
    const bound = await go('reverseContinue', { singleThread: true });
    assert.deepEqual([bound.reason, bound.threadId], ['history start', crashed]);
    assert.match(bound.text, /1 hit in thread \d+/);
    await client().move('backtrail/goto', { to: 'crash' });
    const hit = await go('reverseContinue');
    assert.equal(hit.reason, 'function breakpoint');
    assert.notEqual(hit.threadId, crashed);
    assert.ok((await where()).startsWith(`t${hit.threadId}#`));
  });

  it('members are listed in pages, and by the right filter', async () => {
    const frame = await client().frame();
    const { scopes } = await client().ask('scopes', { frameId: frame.id });
    const registers = scopes.find(({ name }) => name === 'Registers').variablesReference;
    const all = (await client().ask('variables', { variablesReference: registers })).variables;
    const some = await client().ask('variables', { variablesReference: registers, start: 2, count: 3 });
    assert.deepEqual(some.variables, all.slice(2, 5));
    const none = await client().ask('variables', { variablesReference: registers, filter: 'indexed' });
    assert.deepEqual(none.variables, []);
  });
});
