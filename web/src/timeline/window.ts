/** The window of time that the timeline shows: zooming, panning, and its scale. */

import type { Unit } from './data';

/** A range of time. */
export interface Span {
  from: number;
  to: number;
}

/** The minimum length of a window, in any unit. */
export const SHORTEST = 8;

/** Moves a window into bounds, and shortens it only if necessary. */
export function within(span: Span, bounds: Span): Span {
  const whole = Math.max(bounds.to - bounds.from, SHORTEST);
  const length = Math.min(Math.max(span.to - span.from, SHORTEST), whole);
  const middle = (span.from + span.to) / 2;
  const from = Math.min(Math.max(middle - length / 2, bounds.from), bounds.from + whole - length);
  return { from, to: from + length };
}

/** Returns the bounds of the trace, with a margin at both ends. */
export function bounds(begin: number, end: number): Span {
  const room = Math.max((end - begin) * 0.02, SHORTEST / 2);
  return { from: begin - room, to: end + room };
}

/** Scales the window by `factor`; the time at `fraction` of it is fixed. */
export function zoom(span: Span, fraction: number, factor: number, limits: Span): Span {
  const length = Math.max((span.to - span.from) * factor, SHORTEST);
  const still = span.from + fraction * (span.to - span.from);
  return within({ from: still - fraction * length, to: still + (1 - fraction) * length }, limits);
}

/**
 * Returns the fraction of the window that is fixed when keys zoom: the selection if it is visible,
 * otherwise the position.
 */
export function stillAt(span: Span, chosen: Span | undefined, here: number | undefined): number {
  const length = span.to - span.from;
  const isSeen = (at: number | undefined) => at !== undefined && at >= span.from && at <= span.to;
  const isChosen =
    chosen !== undefined && isSeen(chosen.from) && isSeen(chosen.to) && chosen.to - chosen.from < length * 0.9;
  const middle = isChosen ? (chosen.from + chosen.to) / 2 : here;
  return middle !== undefined && isSeen(middle) ? (middle - span.from) / length : 0.5;
}

/** Moves the window by a part of its length. */
export function pan(span: Span, fraction: number, limits: Span): Span {
  const by = fraction * (span.to - span.from);
  return within({ from: span.from + by, to: span.to + by }, limits);
}

/** Moves the window until a range is visible. A range that does not fit shows its beginning. */
export function show(span: Span, wanted: Span, limits: Span): Span {
  const length = span.to - span.from;
  const room = length * 0.05;
  if (wanted.to > span.from + room && wanted.from < span.to - room) {
    const seen = Math.min(wanted.to, span.to) - Math.max(wanted.from, span.from);
    if (seen >= Math.min(wanted.to - wanted.from, length) * 0.5) {
      return span;
    }
  }
  const from = wanted.to - wanted.from > length ? wanted.from - room : (wanted.from + wanted.to - length) / 2;
  return within({ from, to: from + length }, limits);
}

/** Returns the pixel of a time, from the left of the window. */
export function pixel(at: number, span: Span, width: number): number {
  return ((at - span.from) / (span.to - span.from)) * width;
}

/** Returns the time at a pixel. */
export function timeAt(x: number, span: Span, width: number): number {
  return span.from + (x / width) * (span.to - span.from);
}

/** Returns round times within a window, at least `apart` pixels apart, and their distance. */
export function ticks(span: Span, width: number, apart: number): { at: number[]; step: number } {
  const least = ((span.to - span.from) * apart) / Math.max(width, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(least, Number.MIN_VALUE)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= least) ?? 10 * power;
  const at: number[] = [];
  for (let count = Math.ceil(span.from / step); count * step <= span.to && at.length < 1000; count += 1) {
    at.push(count * step);
  }
  return { at, step };
}

const NANOSECONDS: [string, number][] = [
  ['s', 1e9],
  ['ms', 1e6],
  ['µs', 1e3],
  ['ns', 1],
];

/** Formats a time or length, with no more digits than `exact` requires. */
export function formatTime(value: number, unit: Unit, exact: number = Math.abs(value) / 1000): string {
  if (unit !== 'ns') {
    return `${Math.round(value).toLocaleString('en-US')} ${unit === 'ticks' ? 'ticks' : 'instr.'}`;
  }
  const [name, size] = NANOSECONDS.find(([, one]) => Math.abs(value) >= one) ?? ['ns', 1];
  const digits = Math.min(Math.max(0, Math.ceil(-Math.log10(Math.max(exact, Number.MIN_VALUE) / size) - 1e-9)), 9);
  const text = (value / size).toFixed(name === 'ns' ? 0 : digits);
  return `${/^-0\.?0*$/.test(text) ? text.slice(1) : text} ${name}`;
}
