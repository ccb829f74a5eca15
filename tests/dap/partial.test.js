// A trace so long that only its end is decoded at first.
'use strict';

const assert = require('node:assert/strict');
const { clients } = require('./lib/client');

describe('a long trace', () => {
  const client = clients(() => ({ bundle: process.env.LARGE }));
  const { it } = client;

  const ask = (name, args = {}) => client().ask(`backtrail/${name}`, args);

  /** Waits until the whole trace is decoded. */
  async function whole() {
    while ((await ask('trace')).isPartial) {
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }

  it('stops at the crash at once', async () => {
    assert.equal(client().first.reason, 'exception');
    const { position } = await ask('where');
    // The position is counted from the end, because the amount of earlier trace is still unknown.
    assert.match(position, /^t\d+#-0$/);
    assert.match((await client().frame()).name, /^main/);
  });

  it('gets its length when it is known', async () => {
    const { isPartial } = await ask('trace');
    const { position } = await ask('where');
    await whole();
    const told = client().messages.filter(({ event }) => event === 'invalidated');
    assert.equal(told.length, isPartial ? 1 : 0);
    // A position is the same before and after.
    assert.equal((await ask('where')).position, position);
    const moved = client().messages.filter(({ event }) => event === 'backtrail/moved');
    assert.equal(moved.length, 1 + told.length);
    assert.equal(moved.at(-1).body.position, position);
  });

  it('is decoded when a response needs it', async () => {
    await client().move('reverseContinue', { threadId: client().threadId });
    assert.match((await ask('where')).position, /#-\d{8}$/);
    assert.equal((await ask('calls')).calls[0].position, (await ask('where')).position);
    assert.equal((await ask('trace')).isPartial, false);
    await client().move('backtrail/runToCall', { function: 'first', direction: 'forward' });
    assert.match((await client().frame()).name, /^(first|add)/);
    const stop = await client().move('continue', { threadId: client().threadId });
    assert.equal(stop.reason, 'exception');
  });

  it('has positions that stay valid', async () => {
    const { position } = await ask('where');
    await client().move('stepBack', { threadId: client().threadId, granularity: 'instruction' });
    const before = (await ask('where')).position;
    const { instructionPointerReference } = await client().frame();
    await whole();
    await client().move('backtrail/goto', { to: position });
    assert.equal((await client().move('stepBack', { threadId: client().threadId, granularity: 'instruction' })).reason, 'step');
    assert.equal((await client().frame()).instructionPointerReference, instructionPointerReference);
    await client().move('backtrail/goto', { to: before });
    assert.equal((await client().frame()).instructionPointerReference, instructionPointerReference);
  });

  it('can be closed while it is decoded', async () => {
    assert.equal((await client().ask('threads')).threads.length, 1);
  });
});
