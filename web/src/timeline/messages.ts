/** The messages between the timeline and the page or extension that has its data. */

import type { Timeline } from './data';

/** Messages to the timeline. */
export type ToPage =
  /** Another trace, or none. */
  | { type: 'reset'; state: 'closed' | 'decoding' | 'open' }
  | { type: 'data'; request: number; timeline: Timeline }
  | { type: 'failed'; request: number; text: string }
  /** The position or the history changed. */
  | { type: 'moved' }
  | { type: 'command'; command: 'zoomIn' | 'zoomOut' | 'fit' | 'here' };

/** Messages from the timeline. */
export type FromPage =
  | { type: 'ready' }
  /** Requests the threads of a window of time; without ends, of the whole trace. */
  | { type: 'want'; request: number; from?: number; to?: number; width: number }
  | { type: 'goto'; to: string };
