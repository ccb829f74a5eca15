// Tests of the message check: errors are found.
'use strict';

const assert = require('node:assert/strict');
const { Checker, faultsOfMessage } = require('./lib/messages');

const response = (command, body, more) => ({ seq: 1, type: 'response', request_seq: 1, success: true, command, body, ...more });
const event = (name, body) => ({ seq: 1, type: 'event', event: name, body });

describe('the check of messages', () => {
  const right = {
    'a request': { seq: 1, type: 'request', command: 'next', arguments: { threadId: 1 } },
    'a request without arguments': { seq: 1, type: 'request', command: 'threads' },
    'a response': response('threads', { threads: [{ id: 1, name: 'a' }] }),
    'a failure': response('threads', { error: { id: 1, format: 'no' } }, { success: false, message: 'no' }),
    'an event': event('stopped', { reason: 'step', threadId: 1 }),
    'one of ours': response('backtrail/coverage', { lines: [{ line: 1, executions: 2 }] }),
    'one of ours without a body': response('backtrail/goto', undefined),
    'an event of ours': event('backtrail/moved', { threadId: 1, position: 't1#0' }),
  };
  for (const [name, message] of Object.entries(right)) {
    it(`takes ${name}`, () => assert.deepEqual(faultsOfMessage(message), []));
  }

  const wrong = {
    'a request without what it needs': { seq: 1, type: 'request', command: 'next', arguments: {} },
    'a request that the protocol does not have': { seq: 1, type: 'request', command: 'dance' },
    'a response of which something is missing': response('threads', { threads: [{ id: 1 }] }),
    'a response with a name in snake case': response('stackTrace', { stack_frames: [] }),
    'a response with a fraction for an integer': response('threads', { threads: [{ id: 1.5, name: 'a' }] }),
    'a response with a null': response('threads', { threads: null }),
    'a response that says neither yes nor no': { seq: 1, type: 'response', request_seq: 1, command: 'threads', body: {} },
    'a failure without a body': response('threads', undefined, { success: false, message: 'no' }),
    'an event without a reason': event('stopped', { threadId: 1 }),
    'an event that the protocol does not have': event('danced', {}),
    'one of ours with something else': response('backtrail/coverage', { lines: [], more: 1 }),
    'one of ours of which something is missing': response('backtrail/coverage', {}),
    'an event of ours without a position': event('backtrail/moved', { threadId: 1 }),
    'a message of no type': { seq: 1 },
  };
  for (const [name, message] of Object.entries(wrong)) {
    it(`finds ${name}`, () => assert.notDeepEqual(faultsOfMessage(message), []));
  }

  it('finds wrong responses', () => {
    const asked = { seq: 1, type: 'request', command: 'threads' };
    const threads = response('threads', { threads: [] });
    for (const [messages, expected] of [
      [[threads], []],
      [[{ ...threads, seq: 2 }], [/seq 2 after 0/]],
      [[threads, { ...threads, seq: 2 }], [/answered before/]],
      [[{ ...threads, request_seq: 2 }], [/was not asked/]],
      [[response('modules', { modules: [] })], [/was asked threads/]],
    ]) {
      const checker = new Checker();
      checker.sent(asked);
      messages.forEach((message) => checker.received(message));
      assert.equal(checker.faults.length, expected.length, checker.faults.join('\n'));
      expected.forEach((pattern, at) => assert.match(checker.faults[at], pattern));
    }
  });
});
