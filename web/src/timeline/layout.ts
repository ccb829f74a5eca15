/**
 * The layout of threads and calls in the timeline, the item under the pointer, and the targets of
 * keys.
 */

import type { Timeline, TimelineCall, TimelineSpan, TimelineThread } from './data';
import { type Span, pixel, timeAt } from './window';

/** Heights, in pixels. */
export const RULER = 22;
export const STATES = 14;
export const LEVEL = 17;
export const BETWEEN = 8;
/** The space beside a name, in pixels. */
export const NAME_SPACE = 12;
/** The largest part of the canvas that the threads' names take. */
const MAX_NAMES = 0.4;
/** The same beside another view in a narrow window. */
const MAX_NAMES_OF_NARROW = 0.5;
const NARROW = 320;

/**
 * Returns the width of the threads' names in a canvas of a width. The widest name fits, unless the
 * names would take too much of the canvas.
 */
export function namesWidth(width: number, widest: number): number {
  const usual = width < 600 ? 84 : 130;
  const part = width < NARROW ? MAX_NAMES_OF_NARROW : MAX_NAMES;
  return Math.max(usual, Math.min(Math.ceil(widest) + NAME_SPACE, Math.floor(width * part)));
}

/** The layout of a thread. */
export interface Track {
  thread: TimelineThread;
  /** The top of its states, from the top of the first thread. */
  top: number;
  /** The top of its calls. */
  calls: number;
  bottom: number;
}

/** Returns the layout of all threads, from top to bottom. */
export function tracks(timeline: Timeline): Track[] {
  let top = 0;
  return timeline.threads.map((thread) => {
    const calls = top + STATES + 2;
    const bottom = calls + thread.levels * LEVEL;
    const track = { thread, top, calls, bottom };
    top = bottom + BETWEEN;
    return track;
  });
}

/** Returns the total height of all threads. */
export function heightOf(all: readonly Track[]): number {
  return all.at(-1)?.bottom ?? 0;
}

/** The item at a point. */
export type Hit =
  | { kind: 'call'; track: Track; call: TimelineCall }
  | { kind: 'state'; track: Track; span: TimelineSpan }
  | { kind: 'thread'; track: Track };

/**
 * Returns the item `x` pixels into the window and `y` pixels below the top of the first
 * thread. Left of the window are the threads' names.
 */
export function hit(all: readonly Track[], x: number, y: number, span: Span, width: number): Hit | undefined {
  const track = all.find((candidate) => y >= candidate.top && y < candidate.bottom + BETWEEN / 2);
  if (track === undefined) {
    return undefined;
  }
  if (x < 0) {
    return { kind: 'thread', track };
  }
  if (y < track.top + STATES) {
    const at = timeAt(x, span, width);
    const state = track.thread.states.find(({ from, to }) => at >= from && at < to);
    return state === undefined ? { kind: 'thread', track } : { kind: 'state', track, span: state };
  }
  const level = Math.floor((y - track.calls) / LEVEL);
  // Narrow items have a tolerance of a few pixels; the nearest wins.
  let nearest: { call: TimelineCall; distance: number } | undefined;
  for (const call of track.thread.calls) {
    if (call.level === level) {
      const from = pixel(call.from, span, width);
      const to = Math.max(pixel(call.to, span, width), from + 1);
      const distance = Math.max(from - x, x - to, 0);
      if (distance <= 2 && (nearest === undefined || distance < nearest.distance)) {
        nearest = { call, distance };
      }
    }
  }
  return nearest === undefined ? { kind: 'thread', track } : { kind: 'call', track, call: nearest.call };
}

/** The call that is selected by keys. */
export interface Chosen {
  threadId: number;
  position: string;
  level: number;
  from: number;
  to: number;
}

/** Directions of the arrow keys. */
export type Direction = 'left' | 'right' | 'up' | 'down';

/** Returns the call that an arrow key selects, or `undefined` if none is loaded there. */
export function neighbor(all: readonly Track[], chosen: Chosen, direction: Direction): Chosen | undefined {
  const index = all.findIndex(({ thread }) => thread.threadId === chosen.threadId);
  const thread = all[index]?.thread;
  if (thread === undefined) {
    return undefined;
  }
  switch (direction) {
    case 'left':
    case 'right': {
      const isLeft = direction === 'left';
      const beside = thread.calls.filter(
        (call) => call.level === chosen.level && (isLeft ? call.from < chosen.from : call.from > chosen.from),
      );
      return closest(thread, beside, chosen.from);
    }
    case 'up':
      return chosen.level > 0
        ? closest(thread, at(thread, chosen.level - 1), (chosen.from + chosen.to) / 2)
        : beyond(all, index, -1, chosen);
    case 'down':
      return (
        closest(thread, at(thread, chosen.level + 1).filter((call) => call.to > chosen.from && call.from < chosen.to), chosen.from) ??
        beyond(all, index, 1, chosen)
      );
  }
}

/** Returns the call that the keys select first: the innermost at a time. */
export function firstChosen(all: readonly Track[], threadId: number | undefined, time: number): Chosen | undefined {
  const preferred = all.find(({ thread }) => thread.threadId === threadId && thread.calls.length > 0);
  const thread = (preferred ?? all.find(({ thread }) => thread.calls.length > 0))?.thread;
  if (thread === undefined) {
    return undefined;
  }
  const around = thread.calls.filter((call) => call.from <= time && call.to >= time);
  const deepest = around.reduce<TimelineCall | undefined>(
    (best, call) => (best === undefined || call.level > best.level ? call : best),
    undefined,
  );
  return deepest === undefined ? closest(thread, at(thread, 0), time) : chosenOf(thread, deepest);
}

/** Returns a call as a selection. */
export function chosenOf(thread: TimelineThread, call: TimelineCall): Chosen {
  return { threadId: thread.threadId, position: call.position, level: call.level, from: call.from, to: call.to };
}

function at(thread: TimelineThread, level: number): TimelineCall[] {
  return thread.calls.filter((call) => call.level === level);
}

function closest(thread: TimelineThread, calls: readonly TimelineCall[], time: number): Chosen | undefined {
  const far = (call: TimelineCall) => Math.max(call.from - time, time - call.to, 0) || Math.abs(call.from - time) * 1e-9;
  const best = calls.reduce<TimelineCall | undefined>(
    (found, call) => (found === undefined || far(call) < far(found) ? call : found),
    undefined,
  );
  return best === undefined ? undefined : chosenOf(thread, best);
}

function beyond(all: readonly Track[], index: number, step: 1 | -1, chosen: Chosen): Chosen | undefined {
  for (let next = index + step; next >= 0 && next < all.length; next += step) {
    const thread = all[next]?.thread;
    if (thread !== undefined && thread.calls.length > 0) {
      return closest(thread, at(thread, 0), (chosen.from + chosen.to) / 2);
    }
  }
  return undefined;
}
