// A use after free, recorded with the history of the heap.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { clients } = require('./lib/client');

/** Returns the number of the line of the program that ends with a comment. */
function line(comment) {
  const source = path.join(__dirname, '../fixtures/heap/dispatch.cpp');
  const lines = fs.readFileSync(source, 'utf8').split('\n');
  return lines.findIndex((text) => text.endsWith(`// ${comment}`)) + 1;
}

describe('a use after free', () => {
  const client = clients(() => ({ bundle: process.env.HEAP }));
  const { it } = client;

  const go = (command, more) => client().move(command, { threadId: client().threadId, ...more });
  const repl = async (expression) => (await client().ask('evaluate', { expression, context: 'repl' })).result;
  const info = () => client().ask('exceptionInfo', { threadId: client().threadId });
  /** Returns the address of the block that the crash is about. */
  const block = async () => /inside the block of 120 bytes at (0x[0-9a-f]+)/.exec((await info()).description)[1];
  const freed = () => `freed by thread "reaper" in drop_session at dispatch.cpp:${line('freed')}`;
  const allocated = () => new RegExp(`allocated by open_session at dispatch\\.cpp:${line('allocated')}`);

  it('is described at the first stop', async () => {
    assert.equal(client().first.reason, 'exception');
    const { description, exceptionId } = await info();
    assert.equal(exceptionId, 'SIGSEGV');
    const [signal, finding, evidence] = description.split(/; |\. /);
    assert.match(signal, /^SIGSEGV/);
    assert.ok(finding.startsWith(`use after free: ${freed()}`), finding);
    assert.match(finding, allocated());
    assert.match(evidence, /0 bytes inside the block of 120 bytes at 0x/);
  });

  it('has the history of its block in the console', async () => {
    const history = await repl(`info heap ${await block()}`);
    const [head, first, second] = history.split('\n');
    assert.match(head, /^0x[0-9a-f]+, 120 bytes$/);
    assert.match(first, new RegExp(`allocated by operator new in open_session.* at dispatch\\.cpp:${line('allocated')}`));
    assert.match(second, new RegExp(`freed by operator delete in drop_session.* at dispatch\\.cpp:${line('freed')}.*"reaper"`));
    assert.match(await repl('info heap'), /live, .* at this position/);
    // An address that no block had.
    assert.match(await repl('info heap 1'), /no block|0x1/);
  });

  it('is reached backward by a condition on the address', async () => {
    const address = await block();
    const crashed = client().threadId;
    const { breakpoints } = await client().ask('setFunctionBreakpoints', {
      breakpoints: [{ name: 'free', condition: `address == ${address}` }],
    });
    assert.equal(breakpoints[0].verified, true, JSON.stringify(breakpoints));
    const stop = await go('reverseContinue');
    assert.equal(stop.reason, 'function breakpoint');
    assert.notEqual(stop.threadId, crashed);
    const { stackFrames } = await client().ask('stackTrace', { threadId: stop.threadId });
    const drop = stackFrames.find(({ name }) => name.startsWith('drop_session'));
    assert.equal(drop.line, line('freed'));
    // No other free before it has this block.
    const edge = await client().move('reverseContinue', { threadId: stop.threadId });
    assert.equal(edge.reason, 'history start');
    await client().ask('setFunctionBreakpoints', { breakpoints: [] });
  });

  it('is described only at the crash', async () => {
    await client().move('backtrail/goto', { to: 'start' });
    assert.match(await client().refused('exceptionInfo', { threadId: client().threadId }), /crash/);
  });
});
