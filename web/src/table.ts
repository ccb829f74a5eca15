/** The rows of the table of functions: sorted, and only those that match. */

import type { FunctionName } from './model';
import type { FunctionWeight } from './totals';

/** The columns by which rows are sorted. */
export type SortKey = 'own' | 'total' | 'change' | 'name';

/** An order of rows. */
export interface Order {
  key: SortKey;
  isAscending: boolean;
}

/** Returns the order after a press on a column's head. */
export function pressed(order: Order, key: SortKey): Order {
  return key === order.key ? { key, isAscending: !order.isAscending } : { key, isAscending: key === 'name' };
}

/** Returns the rows in an order. `matches` selects functions; `undefined` selects all. */
export function sorted(
  rows: readonly FunctionWeight[],
  order: Order,
  functions: readonly FunctionName[],
  matches: readonly boolean[] | undefined,
): FunctionWeight[] {
  const kept = rows.filter((row) => matches === undefined || matches[row.fn] === true);
  const sign = order.isAscending ? 1 : -1;
  const name = (row: FunctionWeight) => functions[row.fn]?.name ?? '';
  const byName = (one: FunctionWeight, other: FunctionWeight) => compare(name(one), name(other)) || one.fn - other.fn;
  if (order.key === 'name') {
    return kept.sort((one, other) => sign * byName(one, other));
  }
  const keys: [SortKey, SortKey] = order.key === 'total' ? ['total', 'own'] : [order.key, 'total'];
  return kept.sort((one, other) => {
    for (const key of keys) {
      const difference = value(one, key) - value(other, key);
      if (difference !== 0) {
        return sign * difference;
      }
    }
    return byName(one, other);
  });
}

/** Returns the number by which a row is sorted. A comparison is sorted by its larger weight. */
function value(row: FunctionWeight, key: SortKey): number {
  if (key === 'change') {
    return Math.abs((row.own[1] ?? 0) - (row.own[0] ?? 0));
  }
  return Math.max(...(key === 'own' ? row.own : row.total));
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
