// The adapter without a client: raw bytes in, packets out.
'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { Checker } = require('./messages');

const LOST = 60_000;

/** Returns a message as a packet, with a custom header if given. */
function packet(message, header) {
  const body = Buffer.from(typeof message === 'string' ? message : JSON.stringify(message));
  return Buffer.concat([Buffer.from(header ? header(body.length) : `Content-Length: ${body.length}\r\n\r\n`), body]);
}

class Raw {
  constructor(...options) {
    this.program = spawn(process.env.BACKTRAIL_BIN, ['dap', ...options], {
      env: { ...process.env, RUST_BACKTRACE: '0' },
    });
    this.exited = new Promise((resolve) => this.program.on('exit', (code, signal) => resolve(signal ?? code)));
    this.messages = [];
    this.checker = new Checker();
    this.waiting = [];
    this.seq = 0;
    this.errors = '';
    this.program.stderr.on('data', (data) => (this.errors += data));
    // The program may have ended before it read everything.
    this.program.stdin.on('error', () => {});
    let rest = Buffer.alloc(0);
    this.program.stdout.on('data', (data) => {
      rest = this.take(Buffer.concat([rest, data]));
    });
  }

  /** Reads packets, and fails for any output without the exact header of the protocol. */
  take(bytes) {
    for (;;) {
      const end = bytes.indexOf('\r\n\r\n');
      if (end < 0) {
        return bytes;
      }
      const header = bytes.toString('latin1', 0, end);
      const length = /^Content-Length: (\d+)$/.exec(header);
      if (!length) {
        this.checker.faults.push(`a header: ${header}`);
        return bytes.subarray(end + 4);
      }
      const total = end + 4 + Number(length[1]);
      if (bytes.length < total) {
        return bytes;
      }
      const message = JSON.parse(bytes.toString('utf8', end + 4, total));
      this.messages.push(message);
      this.checker.received(message);
      this.waiting = this.waiting.filter((look) => !look(message));
      bytes = bytes.subarray(total);
    }
  }

  write(...parts) {
    for (const part of parts) {
      this.program.stdin.write(part);
    }
  }

  /** Returns a request, defined by the protocol or not, and registers it as open. */
  request(command, args, more) {
    const message = { seq: ++this.seq, type: 'request', command, ...(args === undefined ? {} : { arguments: args }), ...more };
    this.checker.sent(message, false);
    return message;
  }

  /** Returns the response to a request that was or will be written. */
  answer(request) {
    return this.wait((message) => message.type === 'response' && message.request_seq === request.seq, request.command);
  }

  wait(holds, name) {
    const found = this.messages.find(holds);
    if (found) {
      return Promise.resolve(found);
    }
    return new Promise((resolve, reject) => {
      const lost = setTimeout(() => reject(new Error(`lost: ${name}; stderr: ${this.errors}`)), LOST);
      this.waiting.push((message) => {
        const isIt = holds(message);
        if (isIt) {
          clearTimeout(lost);
          resolve(message);
        }
        return isIt;
      });
    });
  }

  ask(command, args) {
    const request = this.request(command, args);
    this.write(packet(request));
    return this.answer(request);
  }

  /** Checks that the adapter still responds. */
  async isAlive() {
    const response = await this.ask('initialize', { adapterID: 'backtrail' });
    assert.equal(response.success, true, JSON.stringify(response));
  }

  /** Starts a session at the crash. */
  async launch(args) {
    await this.ask('initialize', { adapterID: 'backtrail' });
    const launched = this.ask('launch', args);
    await this.wait((message) => message.event === 'initialized', 'initialized');
    await this.ask('configurationDone', {});
    const response = await launched;
    assert.equal(response.success, true, JSON.stringify(response));
    const stop = await this.wait((message) => message.event === 'stopped', 'stopped');
    return stop.body;
  }

  /** Ends the session, unless it has already ended. */
  async end() {
    if (!this.isOver) {
      await this.ask('disconnect', {});
      assert.equal(await this.exited, 0, 'exit status');
    }
    this.isOver = true;
    assert.deepEqual(this.checker.faults, []);
    assert.deepEqual([...this.checker.open.values()], [], 'requests without an answer');
    assert.equal(this.errors, '');
  }

  kill() {
    this.program.kill();
  }
}

module.exports = { Raw, packet };
