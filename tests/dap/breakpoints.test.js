// Breakpoints of all kinds, in both directions.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { clients } = require('./lib/client');
const { file, line } = require('./lib/source');

describe('breakpoints', () => {
  const client = clients(() => ({ bundle: process.env.LEDGER }));
  const { it } = client;

  const go = (command, more) => client().move(command, { threadId: client().threadId, ...more });
  const name = async () => (await client().frame()).name.split(/[ (]/)[0];
  const index = async () => Number((await client().ask('backtrail/where')).position.split('#')[1]);

  async function set(...breakpoints) {
    const body = await client().ask('setBreakpoints', {
      source: { path: file('ledger.c'), name: 'ledger.c' },
      breakpoints,
      lines: breakpoints.map((breakpoint) => breakpoint.line),
      sourceModified: false,
    });
    assert.equal(body.breakpoints.length, breakpoints.length);
    return body.breakpoints;
  }

  async function setFunctions(...breakpoints) {
    const body = await client().ask('setFunctionBreakpoints', { breakpoints });
    assert.equal(body.breakpoints.length, breakpoints.length);
    return body.breakpoints;
  }

  const posted = () => line('ledger.c', 'account->balance += amount;');
  const settled = () => line('ledger.c', 'if (account->balance < account->minimum)');
  /** 24 transfers, of which some bounce. */
  async function count(functionName) {
    const { result } = await client().ask('evaluate', { expression: `count ${functionName}`, context: 'repl' });
    return Number(/(\d+) call/.exec(result)[1]);
  }

  it('on lines are verified, and hit in both directions', async () => {
    const [breakpoint] = await set({ line: settled() });
    assert.equal(breakpoint.verified, true);
    assert.equal(breakpoint.line, settled());
    let stop = await go('reverseContinue');
    assert.equal(stop.reason, 'breakpoint');
    assert.deepEqual(stop.hitBreakpointIds, [breakpoint.id]);
    assert.equal((await client().frame()).line, settled());
    const last = await index();
    stop = await go('reverseContinue');
    assert.equal(stop.reason, 'breakpoint');
    assert.ok((await index()) < last);
    await go('continue');
    assert.equal(await index(), last);
    stop = await go('continue');
    assert.equal(stop.reason, 'exception');
  });

  it('can be set before the session is configured', async () => {
    // This client started without breakpoints, so a second client sets them before the start.
    const { Client } = require('./lib/client');
    const other = await new Client().start();
    await other.launch(
      { bundle: process.env.LEDGER, position: 'start' },
      { breakpoints: [{ source: { path: file('ledger.c') }, breakpoints: [{ line: settled() }] }] },
    );
    const stop = await other.move('continue', { threadId: other.threadId });
    assert.equal(stop.reason, 'breakpoint');
    await other.end();
  });

  it('on lines without code move to code, or report that there is none', async () => {
    const comment = line('ledger.c', '/* Closes the account if it is below its minimum. */');
    const [moved, beyond] = await set({ line: comment }, { line: 100_000 });
    assert.ok(moved.verified ? moved.line > comment : moved.message, JSON.stringify(moved));
    assert.equal(beyond.verified, false);
    assert.ok(beyond.message, JSON.stringify(beyond));
  });

  it('in files outside the program are not verified', async () => {
    const { breakpoints } = await client().ask('setBreakpoints', {
      source: { path: '/nowhere/else.c' },
      breakpoints: [{ line: 1 }],
    });
    assert.equal(breakpoints[0].verified, false);
    assert.ok(breakpoints[0].message);
    assert.equal((await go('reverseContinue')).reason === 'breakpoint', false);
  });

  it('in another file of the same name do not apply to this one', async () => {
    const [breakpoint] = await set({ line: settled() });
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'other-'));
    const other = path.join(folder, 'ledger.c');
    fs.writeFileSync(other, 'int nothing;\n'.repeat(200));
    for (const breakpoints of [[{ line: settled() }], []]) {
      const answer = await client().ask('setBreakpoints', { source: { path: other }, breakpoints });
      assert.ok(answer.breakpoints.every(({ verified }) => !verified));
    }
    // A copy with the same contents is the same source, wherever it is stored.
    fs.copyFileSync(file('ledger.c'), other);
    const copied = await client().ask('setBreakpoints', { source: { path: other }, breakpoints: [{ line: settled() }] });
    assert.equal(copied.breakpoints[0].verified, true);
    await client().ask('setBreakpoints', { source: { path: other }, breakpoints: [] });
    fs.rmSync(folder, { recursive: true });
    assert.deepEqual((await go('reverseContinue')).hitBreakpointIds, [breakpoint.id]);
  });

  it('on the first line of a function report where they stop', async () => {
    const opening = line('ledger.c', 'static void settle(int number)') + 1;
    const [breakpoint] = await set({ line: opening });
    await go('reverseContinue');
    assert.equal((await client().frame()).line, breakpoint.line);
    const { breakpoints } = await client().ask('breakpointLocations', {
      source: { path: file('ledger.c') },
      line: opening,
      endLine: opening + 5,
    });
    assert.ok(breakpoints.some(({ line }) => line === breakpoint.line));
    for (const { line } of breakpoints) {
      assert.equal((await set({ line }))[0].line, line);
    }
  });

  it('of a file replace the earlier ones', async () => {
    await set({ line: settled() }, { line: posted() });
    await setFunctions({ name: 'median_balance' });
    await set();
    const stop = await go('reverseContinue');
    assert.equal(await name(), 'median_balance', JSON.stringify(stop));
    await setFunctions();
    await go('reverseContinue');
    assert.equal(await index(), 0);
  });

  it('have different ids', async () => {
    const lines = await set({ line: settled() }, { line: posted() });
    const functions = await setFunctions({ name: 'apply' }, { name: 'post' });
    const ids = [...lines, ...functions].map(({ id }) => id);
    assert.ok(ids.every(Number.isInteger), `${ids}`);
    assert.equal(new Set(ids).size, 4);
  });

  it('on functions are verified, and hit', async () => {
    const [settle, nothing] = await setFunctions({ name: 'settle' }, { name: 'no_such_function' });
    assert.equal(settle.verified, true);
    assert.equal(nothing.verified, false);
    assert.ok(nothing.message);
    const stop = await go('reverseContinue');
    assert.equal(stop.reason, 'function breakpoint');
    assert.deepEqual(stop.hitBreakpointIds, [settle.id]);
    assert.equal(await name(), 'settle');
  });

  it('on instructions are verified, and hit', async () => {
    await go('backtrail/runToCall', { function: 'settle' });
    const reference = (await client().frame()).instructionPointerReference;
    const at = await index();
    await go('backtrail/goto', { to: 'crash' });
    const { breakpoints } = await client().ask('setInstructionBreakpoints', {
      breakpoints: [{ instructionReference: reference }, { instructionReference: '0x1', offset: 3 }],
    });
    assert.equal(breakpoints[0].verified, true);
    assert.equal(breakpoints[1].verified, false);
    const stop = await go('reverseContinue');
    assert.equal(stop.reason, 'instruction breakpoint');
    assert.deepEqual(stop.hitBreakpointIds, [breakpoints[0].id]);
    assert.equal(await index(), at);
  });

  it('on instructions support offsets', async () => {
    await go('backtrail/runToCall', { function: 'settle' });
    const at = BigInt((await client().frame()).instructionPointerReference);
    await go('backtrail/goto', { to: 'crash' });
    const reference = `0x${(at + 16n).toString(16)}`;
    await client().ask('setInstructionBreakpoints', {
      breakpoints: [{ instructionReference: reference, offset: -16 }],
    });
    await go('reverseContinue');
    assert.equal(BigInt((await client().frame()).instructionPointerReference), at);
  });

  it('with a condition stop where it holds', async () => {
    await go('backtrail/goto', { to: 'start' });
    const [conditional] = await setFunctions({ name: 'post', condition: '$caller == end_of_day' });
    assert.equal(conditional.verified, true, JSON.stringify(conditional));
    await go('continue');
    const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId, levels: 2 });
    assert.match(stackFrames[1].name, /^end_of_day/);
  });

  it('with an invalid condition report the error', async () => {
    const [breakpoint] = await setFunctions({ name: 'post', condition: '1 +' });
    assert.equal(breakpoint.verified, false);
    assert.ok(breakpoint.message);
  });

  it('with a count stop at that hit', async () => {
    await go('backtrail/goto', { to: 'start' });
    await setFunctions({ name: 'settle' });
    const hits = [];
    for (let hit = 0; hit < 3; hit++) {
      await go('continue');
      hits.push(await index());
    }
    await go('backtrail/goto', { to: 'start' });
    const [counted] = await setFunctions({ name: 'settle', hitCondition: '3' });
    assert.equal(counted.verified, true, JSON.stringify(counted));
    await go('continue');
    assert.equal(await index(), hits[2]);
  });

  it('count the hits with a true condition', async () => {
    await go('backtrail/goto', { to: 'start' });
    await setFunctions({ name: 'post', condition: '$caller == end_of_day' });
    await go('continue');
    const first = await index();
    await go('continue');
    const second = await index();
    for (const [hitCondition, at] of [['1', first], ['2', second], ['>= 2', second], ['% 2', second]]) {
      await go('backtrail/goto', { to: 'start' });
      const [counted] = await setFunctions({ name: 'post', condition: '$caller == end_of_day', hitCondition });
      assert.equal(counted.verified, true, JSON.stringify(counted));
      await go('continue');
      assert.equal(await index(), at, hitCondition);
    }
    const [never] = await setFunctions({ name: 'post', hitCondition: '% 0' });
    assert.equal(never.verified, false);
  });

  it('have conditions with the precedence of C', async () => {
    for (const [condition, holds] of [
      ['1 || 0 && 0', true],
      ['0 && 0 || 1', true],
      ['0 || 1 && 0', false],
      ['0 ? 0 : 1 && 1', true],
    ]) {
      await go('backtrail/goto', { to: 'start' });
      await setFunctions({ name: 'settle', condition });
      assert.equal((await go('continue')).reason, holds ? 'function breakpoint' : 'exception', condition);
    }
    const [mixed] = await setFunctions({ name: 'settle', condition: '$hits > 1 || 1' });
    assert.equal(mixed.verified, false);
  });

  it('that are deleted after a hit are reported as removed', async () => {
    await go('backtrail/goto', { to: 'start' });
    await client().ask('evaluate', { expression: 'tbreak settle', context: 'repl' });
    const gone = client().event('breakpoint', ({ reason }) => reason === 'removed');
    await go('continue');
    assert.ok((await gone).breakpoint.id > 0);
  });

  it('at addresses without code are not verified', async () => {
    const [nowhere] = await setFunctions({ name: '*0x1234' });
    assert.equal(nowhere.verified, false);
  });

  it('with a log message print it and do not stop', async () => {
    await go('backtrail/goto', { to: 'start' });
    const logged = [];
    client().on('output', ({ body }) => logged.push(body.output));
    const [breakpoint] = await set({ line: settled(), logMessage: 'settled {sizeof(struct account)} \\{}' });
    assert.equal(breakpoint.verified, true, JSON.stringify(breakpoint));
    const stop = await go('continue');
    assert.equal(stop.reason, 'exception');
    const calls = await count('settle');
    const lines = logged
      .join('')
      .split('\n')
      .filter((text) => text.includes('settled'));
    assert.equal(lines.length, calls, JSON.stringify(logged));
    assert.ok(
      lines.every((text) => text === 'settled 32 {}'),
      JSON.stringify(lines),
    );
  });

  it('can be set on the listed lines', async () => {
    const { breakpoints } = await client().ask('breakpointLocations', {
      source: { path: file('ledger.c') },
      line: settled() - 3,
      endLine: settled() + 3,
    });
    const lines = breakpoints.map((location) => location.line);
    assert.ok(lines.includes(settled()), `${lines}`);
    assert.ok(lines.every((one) => one >= settled() - 3 && one <= settled() + 3));
    for (const verified of await set(...lines.map((one) => ({ line: one })))) {
      assert.ok(verified.verified && lines.includes(verified.line), JSON.stringify(verified));
    }
  });

  it('for exceptions can be set as offered', async () => {
    const offered = client().capabilities.exceptionBreakpointFilters ?? [];
    const body = await client().ask('setExceptionBreakpoints', { filters: offered.map(({ filter }) => filter) });
    assert.ok(!body?.breakpoints || body.breakpoints.length === offered.length);
    await go('stepBack');
    assert.equal((await go('continue')).reason, 'exception');
  });
});
