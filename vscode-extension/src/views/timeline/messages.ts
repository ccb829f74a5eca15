/** What the timeline's page and the extension tell each other. */

import type { Timeline } from '../../protocol';

/** To the page. */
export type ToPage =
  /** Another trace, or none. */
  | { type: 'reset'; state: 'closed' | 'decoding' | 'open' }
  | { type: 'data'; request: number; timeline: Timeline }
  | { type: 'failed'; request: number; text: string }
  /** The position or the history changed. */
  | { type: 'moved' }
  | { type: 'command'; command: 'zoomIn' | 'zoomOut' | 'fit' | 'here' };

/** From the page. */
export type FromPage =
  | { type: 'ready' }
  /** Wants the threads of a window of time; without ends, of the whole trace. */
  | { type: 'want'; request: number; from?: number; to?: number; width: number }
  | { type: 'goto'; to: string };

/** How many levels of calls are asked for. */
export const DEPTH = 64;
