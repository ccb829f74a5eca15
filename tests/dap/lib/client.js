// An editor: VS Code's client for adapter tests, which checks every message.
'use strict';

const assert = require('node:assert/strict');
const { DebugClient } = require('@vscode/debugadapter-testsupport');
const { Checker } = require('./messages');
const { scenarios } = require('./scenario');

/** The timeout of every wait. No test measures time. */
const LOST = 60_000;

class Client extends DebugClient {
  constructor() {
    super(process.env.BACKTRAIL_BIN, 'dap', 'backtrail', { env: { ...process.env, RUST_BACKTRACE: '0' } }, true);
    this.checker = new Checker();
    /** All received messages, in order. */
    this.messages = [];
    this.defaultTimeout = LOST;
  }

  /** Starts the program, or connects to one that listens on this port. */
  async start(port) {
    await super.start(port);
    const program = this._adapterProcess;
    if (program) {
      this.exited = new Promise((resolve) => program.on('exit', (code, signal) => resolve(signal ?? code)));
    }
    return this;
  }

  /** Checks what is sent. */
  connect(readable, writable) {
    const send = (packet) => {
      const message = JSON.parse(packet.slice(packet.indexOf('\r\n\r\n') + 4));
      this.checker.sent(message, !this.isOdd);
      writable.write(packet, 'utf8');
    };
    super.connect(readable, { write: send });
  }

  /** Checks what is received. */
  dispatch(packet) {
    const message = JSON.parse(packet);
    this.checker.received(message);
    this.messages.push(message);
    this.emit('*', message);
    super.dispatch(packet);
  }

  /** The whole response, whether it is a success or not. */
  request(command, args) {
    return new Promise((resolve, reject) => {
      const lost = setTimeout(() => reject(new Error(`no answer to ${command}`)), LOST);
      this.doSend(command, args, (response) => {
        clearTimeout(lost);
        resolve(response);
      });
    });
  }

  /** The body of a successful response. */
  async ask(command, args) {
    const response = await this.request(command, args);
    assert.ok(response.success, `${command} ${JSON.stringify(args)}: ${JSON.stringify(response)}`);
    return response.body;
  }

  /** The sentence that a request is refused with. */
  async refused(command, args) {
    const response = await this.request(command, args);
    assert.equal(response.success, false, `${command}: ${JSON.stringify(response)}`);
    const error = response.body?.error;
    const text = error?.format.replace(/\{(\w+)\}/g, (whole, name) => error.variables?.[name] ?? whole);
    return text ?? response.message;
  }

  /** Sends a request that the protocol does not define. */
  async odd(ask) {
    this.isOdd = true;
    try {
      return await ask();
    } finally {
      this.isOdd = false;
    }
  }

  /** Waits for the next event of this name for which `holds` is true, and returns its body. */
  event(name, holds = () => true) {
    return new Promise((resolve, reject) => {
      const lost = setTimeout(() => reject(new Error(`no event ${name}`)), LOST);
      const listener = (event) => {
        if (holds(event.body)) {
          clearTimeout(lost);
          this.off(name, listener);
          resolve(event.body);
        }
      };
      this.on(name, listener);
    });
  }

  /**
   * Requests a move. Returns the body of the stop, with its position. The response precedes the
   * stop.
   */
  async move(command, args) {
    const [, stop, where] = await Promise.all([
      this.ask(command, args),
      this.event('stopped'),
      this.event('backtrail/moved'),
    ]);
    assert.equal(where.threadId, stop.threadId);
    const kinds = this.messages.map((message) => message.event ?? message.command);
    assert.ok(kinds.lastIndexOf(command) < kinds.lastIndexOf('stopped'), `${command} is answered before the stop`);
    return stop;
  }

  /** Starts a session as VS Code does, and waits for the first stop. */
  async launch(args, { breakpoints, functions, exceptions, initialize, request = 'launch' } = {}) {
    const initialized = this.event('initialized');
    this.capabilities = await this.ask('initialize', {
      clientID: 'test',
      adapterID: 'backtrail',
      pathFormat: 'path',
      linesStartAt1: true,
      columnsStartAt1: true,
      supportsVariableType: true,
      supportsVariablePaging: true,
      supportsMemoryReferences: true,
      supportsProgressReporting: true,
      supportsInvalidatedEvent: true,
      supportsMemoryEvent: true,
      locale: 'en',
      ...initialize,
    });
    const launched = this.ask(request, args);
    await Promise.race([initialized, launched.then(() => initialized)]);
    for (const one of breakpoints ?? []) {
      await this.ask('setBreakpoints', one);
    }
    await this.ask('setFunctionBreakpoints', { breakpoints: functions ?? [] });
    await this.ask('setInstructionBreakpoints', { breakpoints: [] });
    await this.ask('setExceptionBreakpoints', { filters: exceptions ?? [] });
    const stopped = Promise.all([this.event('stopped'), this.event('backtrail/moved')]);
    await this.ask('configurationDone');
    await launched;
    [this.first] = await stopped;
    this.threadId = this.first.threadId;
    return this.first;
  }

  /** The innermost frame. */
  async frame(threadId = this.threadId) {
    const { stackFrames } = await this.ask('stackTrace', { threadId, startFrame: 0, levels: 1 });
    return stackFrames[0];
  }

  /** Ends the session, and checks that the program ends as expected. */
  async end() {
    if (!this.isOver && this.exited) {
      await this.ask('disconnect', {});
      assert.equal(await this.exited, 0, 'exit status');
    }
    this.isOver = true;
    assert.deepEqual(this.checker.faults, []);
    assert.deepEqual([...this.checker.open.values()], [], 'requests without an answer');
  }

  /** Removes everything that remains of the session. */
  kill() {
    this.stopAdapter();
  }
}

/** Returns the client of the running test. The tests are created by its `it`. */
function clients(launch) {
  let client;
  const begin = async () => {
    const begun = await new Client().start();
    await begun.launch(launch());
    return begun;
  };
  const current = () => client;
  current.it = scenarios(begin, (begun) => (client = begun));
  return current;
}

module.exports = { Client, clients };
