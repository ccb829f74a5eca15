/** Weights and times as people read them, in the same words as on the command line. */

const TIME: readonly [number, string][] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']];
const BYTES: readonly [number, string][] = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']];

/** Returns a weight with a unit that fits its size. */
export function formatWeight(weight: number, unit: string): string {
  switch (unit) {
    case 'nanoseconds':
      return scaled(weight, TIME);
    case 'bytes':
      return scaled(weight, BYTES);
    case 'count':
    case '':
      return whole(weight);
    default:
      return `${whole(weight)} ${unit}`;
  }
}

function scaled(weight: number, units: readonly [number, string][]): string {
  const [size, unit] = units.find(([size]) => Math.abs(weight) >= size) ?? [1, units.at(-1)![1]];
  return size > 1 ? `${(weight / size).toFixed(2)} ${unit}` : `${whole(weight)} ${unit}`;
}

function whole(weight: number): string {
  return String(Math.round(weight));
}

/** Returns a part of a total in percent. */
export function formatPercent(part: number, total: number): string {
  return total === 0 ? '-' : `${((part / total) * 100).toFixed(1)}%`;
}

/** Returns a difference with its sign. */
export function formatChange(change: number, unit: string): string {
  return `${change > 0 ? '+' : ''}${formatWeight(change, unit)}`;
}

/** Joins two amounts with their units as a range. A unit that both have is named once. */
export function joinRange(least: string, most: string): string {
  const [, amount, unit] = /^(\S+) (.+)$/.exec(least) ?? [];
  return unit !== undefined && most.endsWith(` ${unit}`) ? `${amount}–${most}` : `${least}–${most}`;
}
