/** The data of the timeline, from the debug adapter or the hub (`Timeline` in docs/dap.md). */

/** The unit of times. */
export type Unit = 'ns' | 'ticks' | 'instructions';

export type ThreadState = 'ran' | 'offCpu' | 'both' | 'unknown' | 'gap';

export interface TimelineSpan {
  state: ThreadState;
  from: number;
  to: number;
  cause?: string;
}

export interface TimelineCall {
  level: number;
  from: number;
  to: number;
  function: string;
  call?: string;
  position: string;
  /** Whether it represents several calls, each shorter than a column. */
  several: boolean;
}

export interface TimelineThread {
  threadId: number;
  name: string;
  current: boolean;
  crashed: boolean;
  timed: boolean;
  states: TimelineSpan[];
  calls: TimelineCall[];
  levels: number;
}

export interface Timeline {
  unit: Unit;
  /** The bounds of the trace. */
  begin: number;
  end: number;
  /** The bounds of this response. */
  from: number;
  to: number;
  here?: { threadId: number; at: number };
  crash?: { threadId: number; at: number; signal: string };
  threads: TimelineThread[];
  /** The libraries of functions that are not the user's own. */
  libraries?: Record<string, string>;
}
