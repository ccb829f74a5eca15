// Input on the wire: packets in odd forms, invalid messages, and requests that the protocol lacks.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { Raw, packet } = require('./lib/raw');
const { scenarios } = require('./lib/scenario');

const bundle = process.env.LEDGER;
const initialize = (raw) => raw.request('initialize', { adapterID: 'backtrail' });

describe('packets', () => {
  let raw;
  const it = scenarios(
    () => new Raw(),
    (begun) => (raw = begun),
  );

  const headers = {
    'a header in small letters': (length) => `content-length: ${length}\r\n\r\n`,
    'a header in capitals': (length) => `CONTENT-LENGTH: ${length}\r\n\r\n`,
    'a header without a space': (length) => `Content-Length:${length}\r\n\r\n`,
    'a header with more spaces': (length) => `Content-Length:   ${length}  \r\n\r\n`,
    'another header behind': (length) =>
      `Content-Length: ${length}\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n`,
    'another header before': (length) => `X-Other: a: b\r\nContent-Length: ${length}\r\n\r\n`,
  };
  for (const [name, header] of Object.entries(headers)) {
    it(`takes ${name}`, async () => {
      const request = initialize(raw);
      raw.write(packet(request, header));
      assert.equal((await raw.answer(request)).success, true);
    });
  }

  it('takes a packet byte by byte', async () => {
    const request = raw.request('initialize', { adapterID: 'backtrail', clientName: 'Prüfung — 試験 🧪' });
    for (const byte of packet(request)) {
      raw.write(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal((await raw.answer(request)).success, true);
  });

  it('takes many packets at once', async () => {
    const requests = Array.from({ length: 200 }, () => initialize(raw));
    raw.write(Buffer.concat(requests.map((request) => packet(request))));
    await Promise.all(requests.map((request) => raw.answer(request)));
    const order = raw.messages.filter(({ type }) => type === 'response').map((message) => message.request_seq);
    assert.deepEqual(
      order,
      requests.map(({ seq }) => seq),
    );
  });

  const spoilt = {
    'a body that is no JSON': packet('{"seq": 1, "type": "request", '),
    'a body that is no UTF-8': Buffer.concat([Buffer.from('Content-Length: 4\r\n\r\n'), Buffer.from([0x22, 0xff, 0xfe, 0x22])]),
    'a body of nothing': Buffer.from('Content-Length: 0\r\n\r\n'),
    'a body of blanks': packet('    '),
    'a body that is a list': packet('[{"seq": 1, "type": "request", "command": "threads"}]'),
    'a body that is a number': packet('7'),
    'a body that is nested deeply': packet('['.repeat(100_000)),
    'a message without a type': packet({ seq: 900 }),
    'a message of another type': packet({ seq: 900, type: 'greeting' }),
    'a response to what was never asked': packet({ seq: 1, type: 'response', request_seq: 9, success: true, command: 'x' }),
    'an event': packet({ seq: 1, type: 'event', event: 'stopped', body: {} }),
    'a header without a length': Buffer.from('X-Other: 5\r\n\r\n'),
    'a length that is no number': Buffer.from('Content-Length: many\r\n\r\n'),
    'a length below zero': Buffer.from('Content-Length: -5\r\n\r\n'),
    'a length that is too short': packet({ seq: 1, type: 'event', event: 'x' }, () => 'Content-Length: 10\r\n\r\n'),
    'empty headers': Buffer.from('\r\n\r\n\r\n\r\n'),
  };
  for (const [name, bytes] of Object.entries(spoilt)) {
    it(`continues after ${name}`, async () => {
      // A message with a number may be answered.
      raw.checker.open.set(900, '');
      raw.write(bytes);
      await raw.isAlive();
      raw.checker.open.delete(900);
    });
  }

  // Packets whose end is unclear end the conversation, but do not crash the adapter.
  const lost = {
    'a length beyond all memory': Buffer.from('Content-Length: 99999999999999\r\n\r\n{}'),
    'a length beyond all numbers': Buffer.from(`Content-Length: 9${'9'.repeat(60)}\r\n\r\n{}`),
    'a length that is too long': packet('{}', () => 'Content-Length: 1000\r\n\r\n'),
    'a header without an end': Buffer.alloc(1 << 20, 'Content-'),
    'a packet that is cut': Buffer.from('Content-Length: 50\r\n\r\n{"seq": 1,'),
    nothing: Buffer.alloc(0),
  };
  for (const [name, bytes] of Object.entries(lost)) {
    it(`ends without a crash when the input ends after ${name}`, async () => {
      raw.write(bytes);
      raw.program.stdin.end();
      const status = await raw.exited;
      assert.ok(status === 0 || status === 3, `exit status ${status}; stderr: ${raw.errors}`);
      assert.ok(!raw.errors.includes('panicked'), raw.errors);
      // Missing responses and late output are allowed.
      raw.isOver = true;
      raw.errors = '';
      raw.checker.open.clear();
    });
  }

  it('ends when the input ends in a session', async () => {
    await raw.launch({ bundle });
    raw.program.stdin.end();
    assert.equal(await raw.exited, 0);
    raw.isOver = true;
  });

  it('ends when its output is closed', async () => {
    await raw.launch({ bundle });
    raw.program.stdout.destroy();
    for (let at = 0; at < 100; at++) {
      raw.write(packet(raw.request('threads')));
    }
    raw.program.stdin.end();
    const status = await raw.exited;
    // The adapter may report that its output was lost.
    assert.ok(status === 0 || status === 1, `exit status ${status}`);
    assert.ok(!raw.errors.includes('panicked'), raw.errors);
    // Missing responses and late output are allowed.
    raw.isOver = true;
    raw.errors = '';
    raw.checker.open.clear();
  });
});

describe('requests', () => {
  let raw;
  const it = scenarios(
    () => new Raw(),
    (begun) => (raw = begun),
  );

  it('refuses unknown requests', async () => {
    await raw.launch({ bundle });
    for (const command of ['makeCoffee', 'backtrail/makeCoffee', '', 'Threads']) {
      const response = await raw.ask(command, { sugar: 2 });
      assert.equal(response.success, false);
      assert.equal(response.command, command);
      assert.ok(response.body.error.format, JSON.stringify(response));
    }
    assert.equal((await raw.ask('threads')).success, true);
  });

  it('ignores unknown fields', async () => {
    await raw.ask('initialize', { adapterID: 'backtrail', supportsTimeTravel: true });
    const { threadId } = await raw.launch({ bundle, colour: 'red', __sessionId: 'a', type: 'backtrail', request: 'launch' });
    const request = raw.request('stackTrace', { threadId, depth: [1], format: null, levels: null }, { colour: 'red' });
    raw.write(packet(request));
    const response = await raw.answer(request);
    assert.equal(response.success, true, JSON.stringify(response));
  });

  it('responds in the order of requests', async () => {
    const { threadId } = await raw.launch({ bundle });
    const asked = [];
    for (let at = 0; at < 20; at++) {
      asked.push(raw.request('threads'));
      asked.push(raw.request('stackTrace', { threadId }));
      asked.push(raw.request('evaluate', { expression: 'backtrace', context: 'repl' }));
      asked.push(raw.request('makeCoffee'));
      asked.push(raw.request('modules', {}));
    }
    raw.write(Buffer.concat(asked.map((request) => packet(request))));
    await Promise.all(asked.map((request) => raw.answer(request)));
    const wanted = new Set(asked.map(({ seq }) => seq));
    const answers = raw.messages.filter((message) => message.type === 'response' && wanted.has(message.request_seq));
    assert.deepEqual(
      answers.map(({ request_seq }) => request_seq),
      asked.map(({ seq }) => seq),
    );
    assert.ok(answers.every(({ command, success }) => success === (command !== 'makeCoffee')));
  });

  // Every request of the protocol, except those that end the session.
  const schema = JSON.parse(fs.readFileSync(path.join(__dirname, '../../dap-adapter/protocol/debugProtocol.json')));
  const ends = ['disconnect', 'terminate', 'restart', 'launch', 'attach', 'configurationDone', 'initialize'];
  const commands = Object.keys(schema.definitions)
    .filter((name) => name.endsWith('Request') && name !== 'Request')
    .map((name) => name[0].toLowerCase() + name.slice(1, -'Request'.length))
    .filter((command) => !ends.includes(command));
  const custom = Object.keys(require('./lib/own').requests);

  function wrong(command) {
    const definition = schema.definitions[`${command[0].toUpperCase()}${command.slice(1)}Arguments`];
    const properties = Object.entries(definition?.properties ?? { threadId: { type: 'integer' }, to: { type: 'string' } });
    const other = { integer: 'seven', string: 7, boolean: 'yes', array: {}, object: [] };
    const extreme = { integer: 2 ** 53 - 1, string: 'x'.repeat(100_000), boolean: true, array: [], object: {} };
    const least = { integer: -1, string: '', boolean: false, array: [null], object: {} };
    const of = (values) => Object.fromEntries(properties.map(([name, { type }]) => [name, values[type] ?? {}]));
    return [undefined, null, {}, 7, [], 'text', of(other), of(extreme), of(least)];
  }

  async function askAllWrongly() {
    for (const command of [...commands, ...custom]) {
      const asked = wrong(command).map((args) => raw.request(command, args));
      raw.write(Buffer.concat(asked.map((request) => packet(request))));
      await Promise.all(asked.map((request) => raw.answer(request)));
    }
  }

  it('answers wrong arguments before there is a session', async () => {
    await raw.isAlive();
    await askAllWrongly();
    await raw.isAlive();
  });

  it('answers wrong arguments in a session', async () => {
    await raw.launch({ bundle });
    await askAllWrongly();
    assert.equal((await raw.ask('threads')).success, true);
  });

  it('answers a launch with wrong arguments, and one after it', async () => {
    await raw.isAlive();
    for (const args of [undefined, null, {}, 7, [], { bundle: 7 }, { bundle: '' }, { bundle, last: 'x' }]) {
      const response = await raw.ask('launch', args);
      assert.equal(response.success, false, JSON.stringify(args));
      assert.ok(response.body.error.format, JSON.stringify(response));
    }
    const stop = await raw.launch({ bundle });
    assert.equal(stop.reason, 'exception');
  });
});
