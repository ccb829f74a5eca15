/** The lengths of the histogram's bars. */

import type { LatencyBar } from '../../protocol';

/** A bar, with its parts as shares of the longest one. */
export interface Bar {
  bar: LatencyBar;
  /** Calls that are certainly in this bar. */
  sure: number;
  /** Calls that may belong to a higher bar. */
  unsure: number;
}

/** Returns the bars from the first to the last with calls. */
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
