/** The timeline's window and layout. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Timeline, TimelineCall } from '../src/timeline/data';
import { described } from '../src/timeline/describe';
import { fitting, threadLabels, widestName } from '../src/timeline/labels';
import { statesOf } from '../src/timeline/legend';
import { LEVEL, NAME_SPACE, STATES, firstChosen, hit, namesWidth, neighbor, tracks } from '../src/timeline/layout';
import { narrowest } from '../src/timeline/levels';
import { SHORTEST, bounds, pan, pixel, show, stillAt, ticks, timeAt, formatTime, within, zoom } from '../src/timeline/window';

const LIMITS = { from: -1000, to: 1000 };

test('zooming does not move the time under the pointer', () => {
  const before = { from: -400, to: 400 };
  for (const fraction of [0, 0.25, 0.5, 1]) {
    for (const factor of [0.5, 0.9, 1.1]) {
      const after = zoom(before, fraction, factor, LIMITS);
      const time = (span: { from: number; to: number }) => span.from + fraction * (span.to - span.from);
      assert.ok(Math.abs(time(after) - time(before)) < 1e-9);
      assert.ok(Math.abs(after.to - after.from - 800 * factor) < 1e-9);
    }
  }
});

test('a window stays within the trace and above the minimum length', () => {
  assert.deepEqual(zoom({ from: -400, to: 400 }, 0.5, 100, LIMITS), LIMITS);
  assert.equal(Math.round(zoom({ from: 0, to: 10 }, 0.5, 1e-9, LIMITS).to - zoom({ from: 0, to: 10 }, 0.5, 1e-9, LIMITS).from), SHORTEST);
  assert.deepEqual(pan({ from: 0, to: 500 }, 10, LIMITS), { from: 500, to: 1000 });
  assert.deepEqual(pan({ from: 0, to: 500 }, -10, LIMITS), { from: -1000, to: -500 });
  const tiny = within({ from: 5, to: 5 }, { from: 5, to: 5 });
  assert.ok(tiny.to > tiny.from);
  const whole = bounds(7, 7);
  assert.ok(whole.to > whole.from);
});

test('zooming in and out a thousand times at random stays within bounds', () => {
  let span = { ...LIMITS };
  for (let round = 0; round < 1000; round += 1) {
    span = round % 3 === 0 ? pan(span, Math.sin(round), LIMITS) : zoom(span, Math.abs(Math.cos(round)), round % 2 === 0 ? 0.3 : 2.5, LIMITS);
    assert.ok(span.from >= LIMITS.from - 1e-6 && span.to <= LIMITS.to + 1e-6 && span.to - span.from >= SHORTEST - 1e-6);
  }
});

test('keys zoom around the selection, the position, or the middle', () => {
  const span = { from: 0, to: 100 };
  assert.equal(stillAt(span, { from: 10, to: 30 }, 50), 0.2);
  assert.equal(stillAt(span, { from: -10, to: 30 }, 40), 0.4);
  assert.equal(stillAt(span, { from: 0, to: 100 }, 40), 0.4);
  assert.equal(stillAt(span, undefined, 101), 0.5);
  assert.equal(stillAt(span, undefined, undefined), 0.5);
});

test('the window moves only for a range outside it', () => {
  const span = { from: 0, to: 100 };
  assert.equal(show(span, { from: 50, to: 50 }, LIMITS), span);
  assert.equal(show(span, { from: 20, to: 60 }, LIMITS), span);
  const moved = show(span, { from: 500, to: 510 }, LIMITS);
  assert.ok(moved.from < 500 && moved.to > 510 && moved.to - moved.from === 100);
});

test('pixels and times convert in both directions', () => {
  const span = { from: -3, to: 17 };
  assert.equal(pixel(timeAt(123, span, 500), span, 500), 123);
});

test('ticks are round and not too close', () => {
  for (const length of [9, 1000, 12345, 7.7e11]) {
    const span = { from: -length, to: 0 };
    const { at, step } = ticks(span, 1000, 100);
    assert.ok(at.length >= 2 && at.length <= 11, `${length}: ${at.length}`);
    assert.match(String(step), /^[125]0*$|^0\.0*[125]$/);
  }
});

test('times are formatted with their units', () => {
  assert.equal(formatTime(-1_500_000, 'ns'), '-1.500 ms');
  assert.equal(formatTime(0, 'ns'), '0 ns');
  assert.equal(formatTime(2_000_000_000, 'ns', 1e9), '2 s');
  assert.equal(formatTime(1234567, 'ticks'), '1,234,567 ticks');
  assert.equal(formatTime(12, 'instructions'), '12 instr.');
});

const call = (level: number, from: number, to: number, name = 'f'): TimelineCall => ({
  level, from, to, function: name, position: `t1#${from + 1000}`, several: false,
});

const TIMELINE: Timeline = {
  unit: 'ns', begin: -1000, end: 0, from: -1000, to: 0,
  threads: [
    { threadId: 1, name: 'a', current: true, crashed: true, timed: true, levels: 2,
      states: [{ state: 'ran', from: -1000, to: -500 }, { state: 'gap', from: -500, to: 0, cause: 'overflow' }],
      calls: [call(0, -1000, 0, 'main'), call(1, -900, -800), call(1, -700, -600), call(1, -400, -399.5)] },
    { threadId: 2, name: 'b', current: false, crashed: false, timed: true, levels: 1, states: [], calls: [call(0, -300, -100, 'worker')] },
  ],
};

test('the item under the pointer is found', () => {
  const all = tracks(TIMELINE);
  const span = { from: -1000, to: 0 };
  const first = all[0];
  assert.ok(first !== undefined);
  const kind = (x: number, y: number) => hit(all, x, y, span, 1000)?.kind;
  assert.equal(kind(10, 3), 'state');
  const found = hit(all, 150, first.calls + LEVEL + 2, span, 1000);
  assert.ok(found?.kind === 'call' && found.call.from === -900);
  const thin = hit(all, 601.5, first.calls + LEVEL + 2, span, 1000);
  assert.ok(thin?.kind === 'call' && thin.call.from === -400);
  assert.equal(kind(250, first.calls + LEVEL + 2), 'thread');
  assert.equal(kind(10, 10_000), undefined);
  // The names are beside the window.
  assert.equal(kind(-20, 3), 'thread');
  assert.equal(kind(-20, first.calls + LEVEL + 2), 'thread');
  assert.ok(first.calls > STATES);
});

test('arrow keys go from call to call, and from thread to thread', () => {
  const all = tracks(TIMELINE);
  const start = firstChosen(all, 1, -850);
  assert.equal(start?.from, -900);
  assert.ok(start !== undefined);
  const right = neighbor(all, start, 'right');
  assert.equal(right?.from, -700);
  assert.equal(neighbor(all, start, 'left'), undefined);
  const up = neighbor(all, start, 'up');
  assert.deepEqual([up?.level, up?.from], [0, -1000]);
  assert.ok(up !== undefined);
  assert.equal(neighbor(all, up, 'up'), undefined);
  assert.equal(neighbor(all, up, 'down')?.level, 1);
  const below = neighbor(all, start, 'down');
  assert.deepEqual([below?.threadId, below?.level], [2, 0]);
  assert.equal(firstChosen(all, 9, -200)?.threadId, 1);
  assert.equal(firstChosen([], 1, 0), undefined);
});

test('labels that do not fit lose the id of the thread, then the end of its name', () => {
  const width = (text: string) => [...text].length;
  const [thread] = TIMELINE.threads;
  assert.ok(thread !== undefined);
  const labels = threadLabels({ ...thread, threadId: 12345, name: 'reaper' });
  assert.equal(fitting(labels, 20, width), '→ ✕ 12345 reaper');
  assert.equal(fitting(labels, 12, width), '→ ✕ reaper');
  assert.equal(fitting(labels, 8, width), '→ ✕ rea…');
  assert.equal(fitting(labels, 0, width), '…');
  assert.deepEqual(threadLabels({ ...thread, current: false, crashed: false, name: '' }), ['1']);
});

test('the legend has the states that occur, in a fixed order', () => {
  assert.deepEqual(statesOf(TIMELINE), ['ran', 'gap']);
  assert.deepEqual(statesOf({ ...TIMELINE, threads: [] }), []);
});

test('a span beyond the window is described as cut off', () => {
  const [track] = tracks(TIMELINE);
  const [main] = TIMELINE.threads[0]?.calls ?? [];
  assert.ok(track !== undefined && main !== undefined);
  const found = { kind: 'call' as const, track, call: main };
  assert.match(described(found, TIMELINE), /^main\n1\.000 µs, from -1\.00 µs to 0 ns\nthread 1 a, the current one, level 0 t1#0$/);
  assert.match(described(found, { ...TIMELINE, begin: -5000, end: 70 }), /more than 1\.000 µs, from before -1\.00 µs to after 0 ns/);
});

test('the chart of the shortest window that has all is chosen', () => {
  const chart = (from: number, to: number): Timeline => ({ unit: 'ns', begin: -1000, end: 0, from, to, threads: [] });
  const charts = [chart(-1000, 0), chart(-100, 0), chart(-10, 0)];
  assert.equal(narrowest(charts), charts[0]);
  assert.equal(narrowest(charts, -900, -800), charts[0]);
  assert.equal(narrowest(charts, -100, -50), charts[1]);
  assert.equal(narrowest(charts, -5, 40), charts[2]);
  assert.equal(narrowest(charts, -101, 0), charts[0]);
  assert.equal(narrowest([], 0, 1), undefined);
});

test('names of ten letters are whole in a narrow panel', () => {
  const measure = (text: string) => 9 * [...text].length;
  const threads = TIMELINE.threads.map((thread) => ({ ...thread, name: 'connection' }));
  const widest = widestName(threads, measure);
  // The marks of the current thread and of the crash are in front.
  assert.equal(widest, measure('→ ✕ connection'));
  for (const width of [400, 599, 600, 1200]) {
    const room = namesWidth(width, widest) - NAME_SPACE;
    for (const thread of threads) {
      assert.ok(fitting(threadLabels(thread), room, measure).endsWith('connection'), `${width}`);
    }
  }
  // A window of 900 pixels, with the latency beside the timeline.
  const small = (text: string) => 8 * [...text].length;
  const room = namesWidth(264, widestName(threads, small)) - NAME_SPACE;
  for (const thread of threads) {
    assert.ok(fitting(threadLabels(thread), room, small).endsWith('connection'));
  }
  // The window keeps most of the canvas.
  assert.equal(namesWidth(400, 9000), 160);
  assert.equal(namesWidth(1000, 9000), 400);
  assert.equal(namesWidth(300, 0), 84);
  assert.equal(namesWidth(1000, 0), 130);
});

test('the tooltip of a call says which library has its code', () => {
  const [thread] = tracks(TIMELINE);
  assert.ok(thread !== undefined);
  const main = thread.thread.calls[0];
  assert.ok(main !== undefined);
  const found = { kind: 'call', track: thread, call: main } as const;
  assert.match(described(found, TIMELINE), /^main\n/);
  assert.match(described(found, { ...TIMELINE, libraries: { main: 'libc.so.6' } }), /^main \(libc\.so\.6\)\n/);
});
