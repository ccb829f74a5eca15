/** What the latency page and the extension tell each other. */

import type { Latency } from '../../protocol';

/** How the table is sorted. */
export type Sort = 'time' | 'length';

/** What the page asks for. */
export interface Query {
  function: string;
  instructions: boolean;
  sort: Sort;
  start: number;
}

/** Rows of the table on a page. */
export const ROWS = 100;

/** To the page. */
export type ToPage =
  /** Another trace, or none. */
  | { type: 'reset'; isOpen: boolean }
  | { type: 'busy' }
  | { type: 'data'; query: Query; latency: Latency }
  | { type: 'failed'; text: string }
  | { type: 'compared'; text: string };

/** From the page. */
export type FromPage =
  | { type: 'ready' }
  | { type: 'query'; query: Query }
  /** Wants a function to be asked for. */
  | { type: 'choose' }
  | { type: 'goto'; to: string }
  | { type: 'compare'; calls: [string, string] };
