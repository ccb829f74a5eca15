/** A profile in memory: its data, and the call tree that all selections share. */

import { Calls } from './calls';
import type { ProfileData } from './data';
import { type CallTree, TreeBuilder, type Weights, addUp } from './tree';

/** A function as a view shows it. */
export interface FunctionName {
  name: string;
  /** The source file. Empty: unknown. */
  file: string;
  /** The module. Empty: unknown. */
  module: string;
}

/** The samples that views show. */
export interface Selection {
  event: number;
  /** Intervals of time: the first one, and the one after the last. `undefined`: all samples. */
  range: readonly [number, number] | undefined;
  /** Whether the second profile is scaled to the total of the first. */
  normalize: boolean;
}

/** A profile, or two that are compared. */
export class Profile {
  readonly tree: CallTree;
  /** The node of each stack. */
  readonly nodeOfStack: Int32Array;
  readonly functions: readonly FunctionName[];
  /** The calls of a recording. `undefined`: the profile has samples only. */
  readonly calls: Calls | undefined;

  constructor(readonly data: ProfileData) {
    const text = (at: number | undefined) => data.strings[at ?? -1] ?? '';
    this.functions = data.functions.name.map((name, at) => ({
      name: text(name),
      file: text(data.functions.file[at]),
      module: text(data.functions.module[at]),
    }));
    const builder = new TreeBuilder(this.functions.length);
    const { caller, frame } = data.stacks;
    this.nodeOfStack = new Int32Array(caller.length + 1);
    for (let at = 0; at < caller.length; at += 1) {
      const fn = data.frames.function[frame[at]!] ?? 0;
      this.nodeOfStack[at + 1] = builder.callee(this.nodeOfStack[caller[at]!]!, fn);
    }
    this.tree = builder.finish();
    this.calls = data.calls === null ? undefined : new Calls(data.calls, this.nodeOfStack);
  }

  /** Whether two profiles are compared. */
  get isComparison(): boolean {
    return this.data.samples.length > 1;
  }

  /** Returns the name of a function. */
  functionName(fn: number): FunctionName {
    return this.functions[fn] ?? { name: 'all', file: '', module: '' };
  }

  /** Returns the weights of the tree's nodes. */
  weigh(selection: Selection): Weights {
    return addUp(this.tree, this.own(selection, this.nodeOfStack, this.tree.caller.length));
  }

  /** Returns the weight of the selected samples by the node of their stacks, for each profile. */
  own(selection: Selection, nodeOfStack: Int32Array, nodeCount: number): Float64Array[] {
    const own = this.data.samples.map((samples) => {
      const sums = new Float64Array(nodeCount);
      for (let at = 0; at < samples.stack.length; at += 1) {
        if (isSelected(samples.event[at]!, samples.interval[at] ?? -1, selection)) {
          sums[nodeOfStack[samples.stack[at]!]!]! += samples.weight[at]!;
        }
      }
      return sums;
    });
    const [before, after] = own;
    if (selection.normalize && before && after) {
      const [wanted, found] = [sum(before), sum(after)];
      if (found !== 0) {
        own[1] = after.map((weight) => (weight * wanted) / found);
      }
    }
    return own;
  }

  /** Returns the weight of an event in each interval of time. */
  histogram(event: number): Float64Array {
    const sums = new Float64Array(this.data.time?.count ?? 0);
    const samples = this.data.samples[0];
    for (let at = 0; samples !== undefined && at < samples.stack.length; at += 1) {
      const interval = samples.interval[at] ?? -1;
      if (samples.event[at] === event && interval >= 0) {
        sums[interval]! += samples.weight[at]!;
      }
    }
    return sums;
  }
}

function isSelected(event: number, interval: number, { event: wanted, range }: Selection): boolean {
  return event === wanted && (range === undefined || (interval >= range[0] && interval < range[1]));
}

function sum(column: Float64Array): number {
  return column.reduce((total, weight) => total + weight, 0);
}
