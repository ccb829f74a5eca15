/** The extensions of DAP by the debug adapter `backtrail dap`: the types of docs/dap.md. */

import type { Timeline, Unit } from '../../web/src/timeline/data';

/** A time in nanoseconds or TSC ticks; 0 is the crash, or the end. */
export interface Moment {
  at: number;
  /** Absent if unbounded. */
  uncertainty?: number;
  unit: 'ns' | 'ticks';
  text: string;
}

/** A length between `least` and `most`. */
export interface Length {
  least: number;
  most: number;
  unit: Unit;
  text: string;
}

export type { Timeline, Unit };

export interface Trace {
  /** Identifies the trace: the same for every copy, and different for other traces. */
  id: string;
  name: string;
  program?: string;
  crash?: { threadId: number; signal: string; text: string };
  notes: string[];
  /** Whether older history is not decoded yet. */
  isPartial: boolean;
  /** Whether values of the past were recorded. */
  hasValues: boolean;
}

export interface Where {
  threadId: number;
  position: string;
  time?: Moment;
  cpu?: number;
  call?: string;
  function?: string;
  file?: string;
  line?: number;
  /** Names the end of history, if the position is at one. */
  end?: string;
}

export interface Call {
  call: string;
  function: string;
  file?: string;
  line?: number;
  /** The library that its code belongs to; absent for the user's own code. */
  library?: string;
  /** The position of its first instruction. */
  position: string;
  instructions: number;
  time?: Moment;
  duration?: Length;
  entered?: string;
  left?: string;
  /** The number of calls that it made. */
  children: number;
  /** The index among its parent's calls, from 0. */
  number: number;
  /** Whether the position is in it, or in a call that it made. */
  around: boolean;
}

export interface LatencyBar {
  from: number;
  to: number;
  calls: number;
  uncertain: number;
}

export interface LatencyRow {
  call?: string;
  position: string;
  threadId: number;
  length: Length;
  instructions: number;
  time?: Moment;
  caller?: string;
}

export interface Latency {
  function: string;
  unit: Unit;
  /** Whether instructions are counted because the trace has no time for these calls. */
  noTime: boolean;
  calls: number;
  measured: number;
  unmeasured: { reason: string; calls: number }[];
  spread?: { name: string; length: Length }[];
  histogram: LatencyBar[];
  rows: LatencyRow[];
}

export interface Bookmark {
  name: string;
  position: string;
}

export interface FunctionName {
  name: string;
  file?: string;
  line?: number;
}

export interface Local {
  name: string;
  value: string;
  unknown: boolean;
}

export interface Locals {
  path?: string;
  firstLine?: number;
  line?: number;
  variables: Local[];
}

type Step = { threadId?: number; granularity?: 'statement' | 'line' | 'instruction' };
type Nothing = Record<string, never>;

/** The requests of our own: arguments and response of each. */
export interface Requests {
  'backtrail/reverseStepIn': [Step, Nothing];
  'backtrail/reverseNext': [Step, Nothing];
  'backtrail/reverseStepOut': [Step, Nothing];
  'backtrail/goto': [{ to: string }, Nothing];
  'backtrail/back': [Nothing, Nothing];
  'backtrail/forward': [Nothing, Nothing];
  'backtrail/runToCall': [{ function: string; direction?: 'backward' | 'forward'; threadId?: number }, Nothing];
  'backtrail/lastWrite': [{ expression: string; direction?: 'backward' | 'forward'; frameId?: number }, Nothing];
  'backtrail/trace': [Nothing, Trace];
  'backtrail/where': [Nothing, Where];
  'backtrail/calls': [
    { threadId?: number; parent?: string; start?: number; count?: number },
    { calls: Call[]; total: number },
  ];
  'backtrail/callPath': [{ threadId?: number }, { path: Call[] }];
  'backtrail/timeline': [{ from?: number; to?: number; width?: number; depth?: number }, Timeline];
  'backtrail/latency': [
    { function: string; instructions?: boolean; sort?: 'time' | 'length'; start?: number; count?: number },
    Latency,
  ];
  'backtrail/compare': [{ calls: [string, string] }, { text: string; comparison: object }];
  'backtrail/bookmarks': [{ set?: Bookmark[]; remove?: string[] }, { bookmarks: Bookmark[] }];
  'backtrail/functions': [{ filter?: string; count?: number }, { functions: FunctionName[]; more: boolean }];
  'backtrail/coverage': [{ path: string }, { lines: { line: number; executions: number }[] }];
  'backtrail/justMyCode': [{ enabled?: boolean }, { enabled: boolean }];
  'backtrail/locals': [{ frameId: number }, Locals];
}

/** The maximum number of calls in a response. */
export const CALLS_AT_ONCE = 500;
