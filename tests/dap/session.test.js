// A session from its beginning to its end.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { spawn } = require('node:child_process');
const { Client } = require('./lib/client');
const { scenarios } = require('./lib/scenario');
const { file, line } = require('./lib/source');

const bundle = process.env.LEDGER;

describe('a session', () => {
  let client;
  const it = scenarios(
    () => new Client().start(),
    (begun) => (client = begun),
  );

  it('reports its capabilities at initialize', async () => {
    const begin = process.hrtime.bigint();
    const capabilities = await client.ask('initialize', { adapterID: 'backtrail' });
    console.log(`      initialize was answered after ${Number(process.hrtime.bigint() - begin) / 1e6} ms`);
    for (const name of [
      'supportsConfigurationDoneRequest',
      'supportsStepBack',
      'supportsSteppingGranularity',
      'supportsFunctionBreakpoints',
      'supportsInstructionBreakpoints',
      'supportsConditionalBreakpoints',
      'supportsHitConditionalBreakpoints',
      'supportsLogPoints',
      'supportsEvaluateForHovers',
      'supportsCompletionsRequest',
      'supportsExceptionInfoRequest',
      'supportsDisassembleRequest',
      'supportsReadMemoryRequest',
      'supportsModulesRequest',
      'supportsLoadedSourcesRequest',
      'supportsGotoTargetsRequest',
      'supportsCancelRequest',
      'supportsDelayedStackTraceLoading',
      'supportsDataBreakpoints',
    ]) {
      assert.equal(capabilities[name], true, name);
    }
    // The past cannot be changed.
    for (const name of [
      'supportsSetVariable',
      'supportsSetExpression',
      'supportsWriteMemoryRequest',
    ]) {
      assert.ok(!capabilities[name], name);
    }
  });

  it('stops at the crash first', async () => {
    const stop = await client.launch({ bundle });
    assert.equal(stop.reason, 'exception');
    assert.equal(stop.allThreadsStopped, true);
    assert.match(`${stop.description} ${stop.text}`, /SIGSEGV/);
    const frame = await client.frame();
    assert.match(frame.name, /^post\b/);
    assert.equal(frame.line, line('ledger.c', 'account->balance += amount;'));
    assert.equal(frame.source.path, file('ledger.c'));
  });

  it('sends initialized before the configuration, and stops after it', async () => {
    await client.launch({ bundle });
    const at = (holds) => client.messages.findIndex(holds);
    const answered = (command) => at((message) => message.type === 'response' && message.command === command);
    const happened = (event) => at((message) => message.event === event);
    assert.ok(answered('initialize') < happened('initialized'));
    assert.ok(happened('initialized') < answered('configurationDone'));
    assert.ok(answered('configurationDone') < happened('stopped'));
    assert.equal(client.messages.filter(({ event }) => event === 'initialized').length, 1);
    assert.equal(client.messages.filter(({ event }) => event === 'stopped').length, 1);
  });

  it('counts lines and columns from 0 where the client does', async () => {
    await client.launch({ bundle }, { initialize: { linesStartAt1: false, columnsStartAt1: false } });
    assert.equal((await client.frame()).line, line('ledger.c', 'account->balance += amount;') - 1);
    const settle = line('ledger.c', 'if (account->balance < account->minimum)') - 1;
    const { breakpoints } = await client.ask('setBreakpoints', {
      source: { path: file('ledger.c') },
      breakpoints: [{ line: settle }],
    });
    assert.equal(breakpoints[0].line, settle);
    await client.move('reverseContinue', { threadId: client.threadId });
    assert.equal((await client.frame()).line, settle);
  });

  it('treats attach as launch', async () => {
    const stop = await client.launch({ bundle }, { request: 'attach' });
    assert.equal(stop.reason, 'exception');
  });

  it('begins at the requested position', async () => {
    const stop = await client.launch({ bundle, position: 'start' });
    assert.notEqual(stop.reason, 'exception');
    const where = await client.ask('backtrail/where');
    assert.match(where.position, /^t\d+#0$/);
    assert.equal(where.threadId, stop.threadId);
  });

  it('refuses a missing bundle, and continues', async () => {
    await client.ask('initialize', { adapterID: 'backtrail' });
    assert.match(await client.refused('launch', { bundle: '/nowhere/at.all' }), /\/nowhere\/at\.all/);
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'backtrail-dap-'));
    assert.ok(await client.refused('launch', { bundle: folder }));
    fs.rmdirSync(folder);
    assert.ok(await client.refused('launch', { bundle: file('ledger.c') }));
    const launched = client.ask('launch', { bundle });
    const stopped = client.event('stopped');
    await client.ask('configurationDone');
    await launched;
    assert.equal((await stopped).reason, 'exception');
  });

  it('refuses addresses that are not allowed', async () => {
    await client.ask('initialize', { adapterID: 'backtrail' });
    for (const address of ['http://example.com/a.btz', 'ftp://example.com/a.btz', 'https://']) {
      assert.ok(await client.refused('launch', { bundle: address }), address);
    }
  });

  it('sends no events before the session begins', async () => {
    await client.ask('initialize', { adapterID: 'backtrail' });
    for (const [command, args] of [
      ['stackTrace', { threadId: 1 }],
      ['continue', { threadId: 1 }],
      ['evaluate', { expression: '1' }],
      ['variables', { variablesReference: 1 }],
    ]) {
      assert.ok(await client.refused(command, args), command);
    }
  });

  it('restarts at its first position', async () => {
    await client.launch({ bundle });
    assert.equal(client.capabilities.supportsRestartRequest, true);
    await client.move('stepBack', { threadId: client.threadId });
    const stop = await client.move('restart', {});
    assert.equal(stop.reason, client.first.reason);
    assert.equal((await client.frame()).line, line('ledger.c', 'account->balance += amount;'));
  });

  it('terminates with one event', async () => {
    await client.launch({ bundle });
    assert.equal(client.capabilities.supportsTerminateRequest, true);
    const terminated = client.event('terminated');
    await client.ask('terminate', {});
    await terminated;
    await client.end();
    assert.equal(client.messages.filter(({ event }) => event === 'terminated').length, 1);
  });

  it('disconnects without arguments', async () => {
    await client.launch({ bundle });
    await client.ask('disconnect');
    assert.equal(await client.exited, 0);
    client.isOver = true;
  });

  it('disconnects before anything else', async () => {
    await client.ask('disconnect');
    assert.equal(await client.exited, 0);
    client.isOver = true;
  });
});

describe('over TCP', () => {
  /** The program, and the port that it prints. */
  async function listen(address) {
    const program = spawn(process.env.BACKTRAIL_BIN, ['dap', '--listen', address]);
    const exited = new Promise((resolve) => program.on('exit', (code, signal) => resolve(signal ?? code)));
    const port = await new Promise((resolve, reject) => {
      let told = '';
      const look = (data) => {
        told += data;
        const found = /127\.0\.0\.1:(\d+)/.exec(told);
        if (found) {
          resolve(Number(found[1]));
        }
      };
      program.stdout.on('data', look);
      program.stderr.on('data', look);
      exited.then((status) => reject(new Error(`exit status ${status}: ${told}`)));
    });
    return { program, exited, port };
  }

  it('serves a session at the printed port', async () => {
    const { program, port } = await listen('127.0.0.1:0');
    try {
      const client = await new Client().start(port);
      await client.launch({ bundle });
      assert.match((await client.frame()).name, /^post\b/);
      await client.ask('disconnect', {});
      await client.end();
    } finally {
      program.kill();
    }
  });

  it('survives silent and invalid clients', async () => {
    const { program, port } = await listen('127.0.0.1:0');
    try {
      for (const bytes of ['', 'GET / HTTP/1.1\r\nHost: a\r\n\r\n', 'Content-Length: 20\r\n\r\n{']) {
        await new Promise((resolve) => {
          const socket = net.createConnection(port, '127.0.0.1', () => socket.end(bytes));
          socket.on('error', resolve).on('close', resolve).resume();
        });
      }
      const client = await new Client().start(port);
      await client.launch({ bundle });
      await client.ask('disconnect', {});
      await client.end();
    } finally {
      program.kill();
    }
  });
});
