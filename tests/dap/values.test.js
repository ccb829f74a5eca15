// Recorded values of the past: variables, hovers, data breakpoints, and the writes of a value.
'use strict';

const assert = require('node:assert/strict');
const { clients } = require('./lib/client');

describe('recorded values', () => {
  const client = clients(() => ({ bundle: process.env.CHANGES }));
  const { it } = client;

  const go = (command, more) => client().move(command, { threadId: client().threadId, ...more });
  const jump = async (command, args) => {
    const stopped = Promise.all([client().event('stopped'), client().event('backtrail/moved')]);
    await client().ask(command, args);
    return (await stopped)[0];
  };
  /** Goes to the last call of a function, and returns its frame. */
  const call = async (name) => {
    await jump('backtrail/runToCall', { function: name });
    // Beyond the instructions that set up the frame.
    await go('next');
    return client().frame();
  };
  const scopes = async (frame) => {
    const { scopes: all } = await client().ask('scopes', { frameId: frame.id });
    return new Map(all.map((scope) => [scope.name, scope.variablesReference]));
  };
  const evaluate = async (expression, frame, context) =>
    (await client().ask('evaluate', { expression, frameId: frame.id, context })).result;
  const watch = async (name, frameId, accessType) => {
    const { dataId, accessTypes, canPersist } = await client().ask('dataBreakpointInfo', { name, frameId });
    assert.deepEqual(accessTypes, ['write', 'read', 'readWrite']);
    assert.equal(canPersist, false);
    const { breakpoints } = await client().ask('setDataBreakpoints', { breakpoints: [{ dataId, accessType }] });
    assert.equal(breakpoints[0].verified, true, breakpoints[0].message);
    return breakpoints[0].id;
  };

  it('are in the trace, and in frames of the past', async () => {
    assert.equal((await client().ask('backtrail/trace')).hasValues, true);
    const frame = await call('deposit');
    assert.match(frame.name, /deposit \(account=0x[0-9a-f]+ <accounts\+16>, amount=50\)|deposit/);
    const references = await scopes(frame);
    const { variables } = await client().ask('variables', { variablesReference: references.get('Arguments') });
    assert.equal(variables.find(({ name }) => name === 'amount').value, '50');
    assert.equal(await evaluate('amount * 2', frame, 'hover'), '100');
    assert.equal(await evaluate('account->number', frame, 'watch'), '8');
    assert.equal(await evaluate('total', frame, 'watch'), '100');
  });

  it('stop at data breakpoints in both directions', async () => {
    const frame = await client().frame();
    const id = await watch('total', frame.id, 'write');
    let stop = await go('reverseContinue');
    assert.equal(stop.reason, 'data breakpoint');
    assert.deepEqual(stop.hitBreakpointIds, [id]);
    assert.match(stop.text, /total: 100 → 150/);
    assert.match((await client().frame()).name, /^deposit/);
    stop = await go('reverseContinue');
    assert.match(stop.text, /total: 60 → 100/);
    stop = await go('continue');
    assert.match(stop.text, /total: 60 → 100/);
    assert.equal(await evaluate('total', await client().frame(), 'watch'), '100');
  });

  it('stop where a member is read', async () => {
    const frame = await call('deposit');
    const references = await scopes(frame);
    const { variables } = await client().ask('variables', { variablesReference: references.get('Arguments') });
    const account = variables.find(({ name }) => name === 'account');
    const { dataId, description } = await client().ask('dataBreakpointInfo', {
      variablesReference: account.variablesReference,
      name: 'balance',
    });
    assert.equal(description, 'balance');
    const { breakpoints } = await client().ask('setDataBreakpoints', {
      breakpoints: [{ dataId, accessType: 'read', hitCondition: '2' }],
    });
    assert.equal(breakpoints[0].verified, true, breakpoints[0].message);
    const stop = await go('continue');
    assert.equal(stop.reason, 'data breakpoint');
    assert.match((await client().frame()).name, /^sum/);
  });

  it('lead to the last write and to the next', async () => {
    const frame = await client().frame();
    await jump('backtrail/lastWrite', { expression: 'accounts[1].balance', frameId: frame.id });
    assert.match((await client().frame()).name, /^main/);
    let stop = await jump('backtrail/lastWrite', { expression: 'accounts[1].balance' });
    assert.equal(stop.reason, 'data breakpoint');
    assert.match((await client().frame()).name, /^deposit/);
    assert.match(stop.text, /accounts\[1\]\.balance: 10 → 60/);
    stop = await jump('backtrail/lastWrite', { expression: 'accounts[1].balance', direction: 'forward' });
    assert.match(stop.text, /accounts\[1\]\.balance: 10 → 60/);
    assert.ok(await client().refused('backtrail/lastWrite', { expression: 'nothing' }));
  });

  it('refuse what cannot be watched', async () => {
    const frame = await client().frame();
    const info = await client().ask('dataBreakpointInfo', { name: '1 + 2', frameId: frame.id });
    assert.equal(info.dataId, null);
    assert.match(info.description, /constant/);
    const { breakpoints } = await client().ask('setDataBreakpoints', { breakpoints: [{ dataId: 'other' }] });
    assert.equal(breakpoints[0].verified, false);
    assert.match(breakpoints[0].message, /not the id of a data breakpoint/);
  });
});

describe('writes that may be unseen', () => {
  const client = clients(() => ({ bundle: process.env.UNSEEN }));
  const { it } = client;

  const jump = async (command, args) => {
    const stopped = Promise.all([client().event('stopped'), client().event('backtrail/moved')]);
    await client().ask(command, args);
    return (await stopped)[0];
  };

  it('are in the description of a stop', async () => {
    const frame = await client().frame();
    const { dataId } = await client().ask('dataBreakpointInfo', { name: 'waiting', frameId: frame.id });
    await client().ask('setDataBreakpoints', { breakpoints: [{ dataId, accessType: 'write' }] });
    const stops = [];
    for (let count = 0; count < 2; count += 1) {
      stops.push(await client().move('reverseContinue', { threadId: client().threadId }));
    }
    assert.match(stops[0].text, / → 7$/);
    assert.match(
      stops[1].text,
      / → 1 In between, accesses may have gone unseen: the kernel may have written here, at t\d+#\d+\.$/,
    );
  });

  it('are the reason of a refusal', async () => {
    await client().ask('setDataBreakpoints', { breakpoints: [] });
    await jump('backtrail/goto', { to: 'crash' });
    // The recorded values show this change by a system call.
    const stop = await jump('backtrail/lastWrite', { expression: 'seen' });
    assert.match(stop.text, /^seen: 2 → 3$/);
    for (let count = 0; count < 3; count += 1) {
      await jump('backtrail/runToCall', { function: 'checkpoint' });
    }
    const why = await client().refused('backtrail/lastWrite', { expression: 'waiting' });
    assert.match(why, /^the last write of waiting is unknown: the kernel may have written here, at t\d+#\d+; /);
  });
});

describe('a trace without recorded values', () => {
  const client = clients(() => ({ bundle: process.env.LEDGER }));
  const { it } = client;

  it('says how to record them', async () => {
    assert.equal((await client().ask('backtrail/trace')).hasValues, false);
    const frame = await client().frame();
    const info = await client().ask('dataBreakpointInfo', { name: 'orders', frameId: frame.id });
    assert.equal(info.dataId, null);
    assert.match(info.description, /record --values/);
  });
});
