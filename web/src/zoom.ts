/** The way between two zooms of a flame graph. */

import type { Span } from './layout';

/** The time of a zoom in milliseconds. */
export const ZOOM_TIME = 180;

/**
 * Returns the visible part at a time between 0 and 1. The size changes by equal factors in equal
 * times, and one place stays where it is on the screen.
 */
export function between(start: Span, end: Span, time: number): Span {
  if (time >= 1 || start.size <= 0 || end.size <= 0) {
    return end;
  }
  const eased = 1 - (1 - Math.max(0, time)) ** 3;
  const size = start.size * (end.size / start.size) ** eased;
  const part = start.size === end.size ? eased : (start.size - size) / (start.size - end.size);
  return { from: start.from + (end.from - start.from) * part, size };
}
