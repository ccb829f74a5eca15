/** The choice among charts of one trace, each of a shorter window than the one before. */

import type { Timeline } from './data';

/** Returns the chart of the shortest window that has all of `from` to `to`. */
export function narrowest(charts: readonly Timeline[], from?: number, to?: number): Timeline | undefined {
  const [whole] = charts;
  if (whole === undefined || from === undefined || to === undefined) {
    return whole;
  }
  const covers = (chart: Timeline) =>
    chart.from <= Math.max(from, chart.begin) && chart.to >= Math.min(to, chart.end);
  return charts.filter(covers).reduce((best, chart) => (chart.to - chart.from < best.to - best.from ? chart : best), whole);
}
