// A crash that perf recorded on a real processor, with its core and without its sources.
'use strict';

const assert = require('node:assert/strict');
const { clients } = require('./lib/client');

describe('a crash from hardware', () => {
  const client = clients(() => ({ bundle: process.env.HASE }));
  const { it } = client;

  const go = (command, more) => client().move(command, { threadId: client().threadId, ...more });

  it('is the first stop', async () => {
    assert.equal(client().first.reason, 'exception');
    const info = await client().ask('exceptionInfo', { threadId: client().threadId });
    assert.match(info.exceptionId, /^SIG/);
  });

  it('has a stack, possibly without sources', async () => {
    const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
    assert.ok(stackFrames.length > 1);
    const frame = stackFrames.find(({ source }) => source);
    const response = await client().request('source', { source: frame.source, sourceReference: frame.source.sourceReference ?? 0 });
    assert.ok(response.success || response.body.error.format);
  });

  it('goes back to its start and forward again', async () => {
    const crash = await client().ask('backtrail/where');
    await go('stepBack');
    const before = await client().ask('backtrail/where');
    assert.notEqual(before.position, crash.position);
    const edge = await go('reverseContinue');
    assert.match(`${edge.description} ${edge.text}`, /history|start|gap/i);
    let stop = await go('continue');
    for (let gaps = 0; gaps < 50 && stop.reason !== 'exception'; gaps++) {
      stop = await go('continue');
    }
    assert.equal(stop.reason, 'exception');
    assert.equal((await client().ask('backtrail/where')).position, crash.position);
  });

  it('can be disassembled', async () => {
    const pc = (await client().frame()).instructionPointerReference;
    const { instructions } = await client().ask('disassemble', {
      memoryReference: pc,
      instructionOffset: -20,
      instructionCount: 40,
    });
    assert.equal(instructions.length, 40);
    assert.equal(BigInt(instructions[20].address), BigInt(pc));
  });

  it('answers our own requests', async () => {
    for (const [name, args] of [
      ['trace', {}],
      ['where', {}],
      ['calls', {}],
      ['callPath', {}],
      ['timeline', { width: 100 }],
      ['functions', { count: 10 }],
    ]) {
      await client().ask(`backtrail/${name}`, args);
    }
  });

  it('ends without errors', async () => {
    const { threads } = await client().ask('threads');
    assert.ok(threads.length >= 1);
  });
});
