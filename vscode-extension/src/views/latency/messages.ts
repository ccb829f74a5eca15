/** The messages between the latency page and the extension. */

import type { Latency } from '../../protocol';

/** How the table is sorted. */
export type Sort = 'time' | 'length';

/** The query of the page. */
export interface Query {
  function: string;
  instructions: boolean;
  sort: Sort;
  start: number;
}

/** The number of rows on a page. */
export const ROWS = 100;

/** Messages to the page. */
export type ToPage =
  /** Another trace, or none. */
  | { type: 'reset'; isOpen: boolean }
  | { type: 'busy' }
  | { type: 'data'; query: Query; latency: Latency }
  | { type: 'failed'; text: string }
  | { type: 'compared'; text: string };

/** Messages from the page. */
export type FromPage =
  | { type: 'ready' }
  | { type: 'query'; query: Query }
  /** Asks the user for a function. */
  | { type: 'choose' }
  | { type: 'goto'; to: string }
  | { type: 'compare'; calls: [string, string] };
