/** A range of time: intervals that a brush or two sliders select. */

/** The first interval, and the one after the last. */
export type Range = readonly [number, number];

/** Returns the range between two pixels of the histogram, at least one interval. */
export function brushed(one: number, other: number, width: number, count: number): Range {
  const place = (x: number) => (Math.max(0, Math.min(width, x)) / Math.max(1, width)) * count;
  const [low, high] = [Math.min(one, other), Math.max(one, other)];
  const first = Math.min(Math.floor(place(low)), count - 1);
  return [first, Math.max(first + 1, Math.min(count, Math.ceil(place(high))))];
}

/** Returns the range of two sliders. The one that moved pushes the other. */
export function slid(from: number, to: number, moved: 'from' | 'to', count: number): Range {
  if (from < to) {
    return [from, to];
  }
  return moved === 'from' ? [Math.min(from, count - 1), Math.min(from, count - 1) + 1] : [Math.max(to, 1) - 1, Math.max(to, 1)];
}

/** Returns the range, or `undefined` if it has all intervals. */
export function selectedRange(range: Range, count: number): Range | undefined {
  return range[0] === 0 && range[1] === count ? undefined : range;
}

/** Adds intervals up to at most `bars` bars. */
export function bars(histogram: Float64Array, bars: number): Float64Array {
  const count = Math.min(histogram.length, Math.max(1, bars));
  const sums = new Float64Array(count);
  histogram.forEach((weight, at) => {
    sums[Math.floor((at * count) / histogram.length)]! += weight;
  });
  return sums;
}
