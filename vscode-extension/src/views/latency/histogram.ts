/** The maths of the histogram: how long its bars are. */

import type { LatencyBar } from '../../protocol';

/** A bar, its parts as shares of the longest one. */
export interface Bar {
  bar: LatencyBar;
  /** Those that are certainly here. */
  sure: number;
  /** Those that may belong further up. */
  unsure: number;
}

/** The bars from the first to the last that has calls. */
export function barsOf(histogram: readonly LatencyBar[]): Bar[] {
  const first = histogram.findIndex(({ calls }) => calls > 0);
  const last = histogram.findLastIndex(({ calls }) => calls > 0);
  if (first < 0) {
    return [];
  }
  const shown = histogram.slice(first, last + 1);
  const longest = Math.max(...shown.map(({ calls }) => calls), 1);
  return shown.map((bar) => {
    const unsure = Math.min(bar.uncertain, bar.calls);
    return { bar, sure: (bar.calls - unsure) / longest, unsure: unsure / longest };
  });
}
