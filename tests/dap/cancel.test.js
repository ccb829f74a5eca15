// Cancellation of long requests.
'use strict';

const assert = require('node:assert/strict');
const { Raw, packet } = require('./lib/raw');
const { scenarios } = require('./lib/scenario');

const bundle = process.env.BUSY;

/** A breakpoint condition that is evaluated for each of a million calls and is never true. */
const LONG = 'break step if value == 12345678';

describe('a long request', () => {
  let raw, threadId;
  const it = scenarios(
    async () => {
      const begun = new Raw();
      ({ threadId } = await begun.launch({ bundle }));
      const set = await begun.ask('evaluate', { expression: LONG, context: 'repl' });
      assert.equal(set.success, true, JSON.stringify(set));
      return begun;
    },
    (begun) => (raw = begun),
  );

  /** Waits until a request has started. */
  const begun = () => new Promise((resolve) => setTimeout(resolve, 100));
  const long = () => raw.request('evaluate', { expression: 'reverse-continue', context: 'repl' });
  const cancel = (request) => raw.request('cancel', { requestId: request.seq });

  it('is canceled while it runs', async () => {
    const request = long();
    raw.write(packet(request));
    await begun();
    assert.ok(!raw.messages.some((message) => message.request_seq === request.seq), 'it has not ended yet');
    const back = cancel(request);
    raw.write(packet(back));
    const [response] = await Promise.all([raw.answer(request), raw.answer(back)]);
    assert.equal(response.success, false, JSON.stringify(response));
    assert.equal(response.message, 'cancelled');
    // The position has not changed.
    const { body } = await raw.ask('stackTrace', { threadId });
    assert.match(body.stackFrames[0].name, /^main/);
  });

  it('is canceled while it waits', async () => {
    const first = long();
    const queued = raw.request('evaluate', { expression: 'reverse-step', context: 'repl' });
    const last = raw.request('stackTrace', { threadId });
    raw.write(packet(first), packet(queued), packet(last));
    await begun();
    const [backQueued, backFirst] = [cancel(queued), cancel(first)];
    raw.write(packet(backQueued), packet(backFirst));
    const answers = await Promise.all([first, queued, last, backQueued, backFirst].map((request) => raw.answer(request)));
    assert.equal(answers[0].message, 'cancelled', JSON.stringify(answers[0]));
    assert.equal(answers[1].message, 'cancelled', JSON.stringify(answers[1]));
    assert.equal(answers[2].success, true);
    assert.match(answers[2].body.stackFrames[0].name, /^main/);
  });

  it('shows progress that can cancel it', async () => {
    await raw.ask('initialize', { adapterID: 'backtrail', supportsProgressReporting: true });
    const request = long();
    raw.write(packet(request));
    const { body } = await raw.wait(({ event }) => event === 'progressStart', 'the progress');
    assert.equal(body.cancellable, true);
    assert.ok(body.title);
    raw.write(packet(raw.request('cancel', { progressId: body.progressId })));
    assert.equal((await raw.answer(request)).message, 'cancelled');
    const end = ({ event, body: { progressId } = {} }) => event === 'progressEnd' && progressId === body.progressId;
    await raw.wait(end, 'the end of the progress');
    await raw.ask('threads');
    for (const { body: update } of raw.messages.filter(({ event }) => event === 'progressUpdate')) {
      assert.equal(update.progressId, body.progressId);
      assert.ok(update.percentage === undefined || (update.percentage >= 0 && update.percentage <= 100));
    }
  });

  it('stops at a pause', async () => {
    const run = raw.request('reverseContinue', { threadId });
    const stops = () => raw.messages.filter(({ event }) => event === 'stopped').length;
    const before = stops();
    raw.write(packet(run));
    await begun();
    const pause = raw.request('pause', { threadId });
    raw.write(packet(pause));
    await Promise.all([raw.answer(run), raw.answer(pause)]);
    let seen = 0;
    await raw.wait((message) => message.event === 'stopped' && ++seen > before, 'the stop');
  });

  it('cannot be canceled after its end, nor with an unknown id', async () => {
    const done = raw.request('threads');
    raw.write(packet(done));
    await raw.answer(done);
    for (const args of [{ requestId: done.seq }, { requestId: 123456 }, { progressId: 'none' }, {}]) {
      await raw.ask('cancel', args);
    }
    assert.equal((await raw.ask('threads')).success, true);
  });

  it('does not delay the end of the session', async () => {
    const request = long();
    raw.write(packet(request));
    await begun();
    const begin = Date.now();
    const bye = raw.request('disconnect', {});
    raw.write(packet(bye));
    await raw.answer(bye);
    assert.equal(await raw.exited, 0);
    console.log(`      disconnect took ${Date.now() - begin} ms`);
    raw.isOver = true;
  });
});
