// Moves through history, in both directions.
'use strict';

const assert = require('node:assert/strict');
const { clients } = require('./lib/client');
const { file, line } = require('./lib/source');

const source = () => ({ path: file('ledger.c') });

describe('moves', () => {
  const client = clients(() => ({ bundle: process.env.LEDGER }));
  const { it } = client;

  const go = (command, more) => client().move(command, { threadId: client().threadId, ...more });
  const position = async () => (await client().ask('backtrail/where')).position;
  const index = async () => Number((await position()).split('#')[1]);

  it('by lines go back and forth', async () => {
    const calls = line('ledger.c', 'post(accounts[orders[i].from], -orders[i].amount);');
    const crash = await position();
    const stop = await go('stepBack');
    assert.equal(stop.reason, 'step');
    assert.equal(stop.allThreadsStopped, true);
    const frame = await client().frame();
    assert.match(frame.name, /^end_of_day/);
    assert.equal(frame.line, calls);
    await go('next');
    assert.equal(await position(), crash);
  });

  it('go into calls and out of them', async () => {
    await go('backtrail/goto', { to: 'start' });
    await go('backtrail/runToCall', { function: 'apply', direction: 'forward' });
    assert.match((await client().frame()).name, /^apply/);
    const names = [];
    for (let steps = 0; steps < 10 && !names.includes('post'); steps++) {
      await go('stepIn');
      names.push((await client().frame()).name.split(/[ (]/)[0]);
    }
    assert.equal(names.at(-1), 'post');
    const stop = await go('stepOut');
    assert.equal(stop.reason, 'step');
    assert.match((await client().frame()).name, /^apply/);
    await go('stepOut');
    assert.match((await client().frame()).name, /^main/);
  });

  it('go over calls', async () => {
    await go('backtrail/goto', { to: 'start' });
    await go('backtrail/runToCall', { function: 'apply', direction: 'forward' });
    for (let steps = 0; steps < 4; steps++) {
      await go('next');
      assert.match((await client().frame()).name, /^apply/);
    }
    for (let steps = 0; steps < 3; steps++) {
      await go('stepBack');
      assert.match((await client().frame()).name, /^apply/);
    }
  });

  it('by instructions go one by one', async () => {
    const at = await index();
    await go('stepBack', { granularity: 'instruction' });
    assert.equal(await index(), at - 1);
    await go('stepBack', { granularity: 'instruction' });
    assert.equal(await index(), at - 2);
    const before = (await client().frame()).instructionPointerReference;
    await go('stepIn', { granularity: 'instruction' });
    assert.equal(await index(), at - 1);
    assert.notEqual((await client().frame()).instructionPointerReference, before);
    await go('next', { granularity: 'instruction' });
    assert.equal(await index(), at);
  });

  it('by statements are the same as by lines', async () => {
    const crash = await position();
    await go('stepBack', { granularity: 'statement' });
    const statement = await position();
    assert.notEqual(statement, crash);
    await go('backtrail/goto', { to: 'crash' });
    await go('stepBack', { granularity: 'line' });
    assert.equal(await position(), statement);
  });

  it('of our own go backward as the standard ones go forward', async () => {
    await go('backtrail/goto', { to: 'start' });
    await go('backtrail/runToCall', { function: 'apply', direction: 'forward' });
    const seen = [await position()];
    for (let steps = 0; steps < 6; steps++) {
      await go('stepIn');
      seen.push(await position());
    }
    for (const before of seen.slice(0, -1).reverse()) {
      await go('backtrail/reverseStepIn');
      assert.equal(await position(), before);
    }
    await go('backtrail/reverseStepOut');
    assert.match((await client().frame()).name, /^main/);
    // This position is a call within a line. Later moves are by lines.
    await go('next');
    const over = await position();
    await go('next');
    await go('backtrail/reverseNext');
    assert.equal(await position(), over);
  });

  it('end at the crash, and say so', async () => {
    const crash = await position();
    for (const command of ['continue', 'next', 'stepIn']) {
      const stop = await go(command);
      assert.equal(await position(), crash);
      assert.match(`${stop.description} ${stop.text}`, /SIGSEGV/, command);
    }
    assert.match((await client().ask('backtrail/where')).end, /^at the crash/);
  });

  it('end at the start of history, and say so', async () => {
    for (const command of ['reverseContinue', 'stepBack', 'backtrail/reverseStepIn']) {
      const stop = await go(command);
      assert.match(await position(), /#0$/);
      assert.match(`${stop.description} ${stop.text}`, /history|start/i, command);
      assert.notEqual(stop.reason, 'breakpoint');
    }
  });

  it('forward reach the crash again', async () => {
    await go('reverseContinue');
    const stop = await go('continue');
    assert.equal(stop.reason, 'exception');
    assert.match(`${stop.description} ${stop.text}`, /SIGSEGV/);
    assert.match((await client().frame()).name, /^post/);
  });

  it('report which threads continue', async () => {
    const threadId = client().threadId;
    const stopped = client().event('stopped');
    const body = await client().ask('continue', { threadId });
    assert.equal(body.allThreadsContinued ?? true, true);
    await stopped;
  });

  it('can be undone and redone', async () => {
    const crash = await position();
    await go('stepBack');
    const before = await position();
    assert.notEqual(before, crash);
    await client().move('backtrail/back', {});
    assert.equal(await position(), crash);
    await client().move('backtrail/forward', {});
    assert.equal(await position(), before);
    await client().move('backtrail/back', {});
    assert.equal(await position(), crash);
    assert.ok(await client().refused('backtrail/back', {}));
  });

  it('go to a line', async () => {
    const wanted = line('ledger.c', 'if (account->balance < account->minimum)');
    const { targets } = await client().ask('gotoTargets', { source: source(), line: wanted });
    assert.ok(targets.length > 0);
    for (const target of targets) {
      assert.ok(target.label);
      const stop = await go('goto', { targetId: target.id });
      assert.equal(stop.reason, 'goto');
      assert.equal((await client().frame()).line, wanted);
    }
  });

  it('have no targets on lines without code', async () => {
    for (const wanted of [100_000, line('ledger.c', 'puts("the day is closed");')]) {
      const response = await client().request('gotoTargets', { source: source(), line: wanted });
      assert.ok(response.success ? response.body.targets.length === 0 : response.body.error.format, `line ${wanted}`);
    }
    assert.ok(await client().refused('gotoTargets', { source: { path: '/nowhere/else.c' }, line: 1 }));
    assert.ok(await client().refused('goto', { threadId: client().threadId, targetId: 123456789 }));
  });

  it('go to positions and calls', async () => {
    const crash = await position();
    const stop = await client().move('backtrail/goto', { to: 'start' });
    assert.equal(stop.threadId, client().threadId);
    const thread = crash.split('#')[0];
    await client().move('backtrail/goto', { to: `${thread}#1000` });
    assert.equal(await position(), `${thread}#1000`);
    await client().move('backtrail/goto', { to: crash });
    assert.equal(await position(), crash);
    assert.ok(await client().refused('backtrail/goto', { to: 'the moon' }));
    assert.equal(await position(), crash);
  });

  it('reach calls of a function, nearest first', async () => {
    await client().move('backtrail/runToCall', { function: 'settle' });
    const last = await index();
    assert.match((await client().frame()).name, /^settle/);
    await client().move('backtrail/runToCall', { function: 'settle' });
    assert.ok((await index()) < last);
    await client().move('backtrail/runToCall', { function: 'settle', direction: 'forward' });
    assert.equal(await index(), last);
  });

  it('restart a frame', async () => {
    const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
    const caller = stackFrames[1];
    assert.match(caller.name, /^end_of_day/);
    await client().move('restartFrame', { frameId: caller.id });
    const begun = await client().frame();
    assert.match(begun.name, /^end_of_day/);
    assert.equal(begun.line, line('ledger.c', 'static void end_of_day(void)') + 1);
  });

  it('may be paused', async () => {
    await client().ask('pause', { threadId: client().threadId });
    assert.equal((await client().ask('threads')).threads.length, 1);
  });

  it('report the new position', async () => {
    const moved = client().event('backtrail/moved');
    await go('stepBack');
    assert.deepEqual(await moved, await client().ask('backtrail/where'));
  });
});
