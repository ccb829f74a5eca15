/** Calls of a recording that a debugger can open: the slowest and a typical one. */

import type { CallColumns, CallData, CallExample } from './data';
import { formatWeight, joinRange } from './units';

/** The call to open. */
export type CallKind = 'slowest' | 'typical';

/** The calls of a function or of a frame. */
export interface CallSummary {
  /** The number of calls with a known length. */
  measured: number;
  /** The number of calls whose beginning or end is not in the recording. */
  leftOut: number;
  slowest: CallExample | null;
  typical: CallExample | null;
}

/** The calls of all functions and nodes. */
export class Calls {
  private readonly functions = new Map<number, CallSummary>();
  private readonly nodes = new Map<number, CallSummary>();

  constructor(
    readonly data: CallData,
    nodeOfStack: Int32Array,
  ) {
    fill(this.functions, data.functions, (fn) => fn);
    fill(this.nodes, data.stacks, (stack) => nodeOfStack[stack]!);
  }

  /** Returns the calls of a function. */
  ofFunction(fn: number): CallSummary | undefined {
    return this.functions.get(fn);
  }

  /** Returns the calls of a function from one stack of callers. */
  ofNode(node: number): CallSummary | undefined {
    return this.nodes.get(node);
  }
}

function fill(calls: Map<number, CallSummary>, columns: CallColumns, keyOf: (index: number) => number): void {
  columns.index.forEach((index, at) => {
    const row: CallSummary = {
      measured: columns.measured[at] ?? 0,
      leftOut: columns.leftOut[at] ?? 0,
      slowest: columns.slowest[at] ?? null,
      typical: columns.typical[at] ?? null,
    };
    const key = keyOf(index);
    const known = calls.get(key);
    calls.set(key, known === undefined ? row : joined(known, row));
  });
}

/** Joins the calls of two functions that a view shows as one. The median of both is not known. */
function joined(one: CallSummary, other: CallSummary): CallSummary {
  const middle = (call: CallExample | null) => (call === null ? -1 : call[1] + call[2]);
  return {
    measured: one.measured + other.measured,
    leftOut: one.leftOut + other.leftOut,
    slowest: middle(other.slowest) > middle(one.slowest) ? other.slowest : one.slowest,
    typical: other.measured === 0 ? one.typical : one.measured === 0 ? other.typical : null,
  };
}

/** Returns a length between two bounds as text. */
export function formatLength([, least, most]: CallExample, unit: string): string {
  const text = (length: number) => formatWeight(length, unit);
  if (least === most) {
    return text(most);
  }
  return least === 0 ? `< ${text(most)}` : joinRange(text(least), text(most));
}

/** Returns a sentence about a call to open, or about its absence. */
export function describeCall(name: string, kind: CallKind, calls: CallSummary | undefined, unit: string): string {
  const left = calls?.leftOut ?? 0;
  const without = `${left} ${left === 1 ? 'call is' : 'calls are'} left out, since ${left === 1 ? 'its' : 'their'} beginning or end is not in the recording`;
  const call = calls?.[kind] ?? null;
  if (calls === undefined || call === null) {
    return left > 0 ? `${name}: ${without}` : `${name}: no call is known`;
  }
  const which = kind === 'slowest' ? 'slowest' : 'median';
  const sentence = `${name}: the ${which} of ${calls.measured} ${calls.measured === 1 ? 'call' : 'calls'} took ${formatLength(call, unit)}, ${call[3]} instructions`;
  return left > 0 ? `${sentence}; ${without}` : sentence;
}

/** Returns the command that opens a call. Positions need quotes in some shells. */
export function commandOf(data: CallData, [position]: CallExample): string {
  return `${data.command}'${position}'`;
}
