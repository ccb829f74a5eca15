/** Call trees: functions with the same callers are one node. */

/** The node of all stacks. */
export const ROOT = 0;

/** A call tree without weights. A caller has a lower number than its callees. */
export interface CallTree {
  /** The caller's node. That of the root is the root. */
  readonly caller: Int32Array;
  /** The function of a node. That of the root is -1. */
  readonly functions: Int32Array;
  readonly depth: Int32Array;
  /** The callees of node n are `callees[first[n]]` to `callees[first[n + 1] - 1]`. */
  readonly first: Int32Array;
  readonly callees: Int32Array;
}

/** A call tree that grows. */
export class TreeBuilder {
  private readonly caller: number[] = [ROOT];
  private readonly functions: number[] = [-1];
  private readonly known = new Map<number, number>();

  /** `functionCount` exceeds all numbers of functions. */
  constructor(private readonly functionCount: number) {}

  /** Returns the node of a function that is called by `caller`. */
  callee(caller: number, fn: number): number {
    const key = caller * (this.functionCount + 1) + fn;
    let node = this.known.get(key);
    if (node === undefined) {
      node = this.caller.length;
      this.caller.push(caller);
      this.functions.push(fn);
      this.known.set(key, node);
    }
    return node;
  }

  /** Returns the tree. */
  finish(): CallTree {
    const caller = Int32Array.from(this.caller);
    const count = caller.length;
    const depth = new Int32Array(count);
    const first = new Int32Array(count + 1);
    for (let node = 1; node < count; node += 1) {
      const above = caller[node]!;
      depth[node] = depth[above]! + 1;
      first[above + 1]! += 1;
    }
    for (let node = 0; node < count; node += 1) {
      first[node + 1]! += first[node]!;
    }
    const next = first.slice();
    const callees = new Int32Array(count - 1);
    for (let node = 1; node < count; node += 1) {
      const above = caller[node]!;
      callees[next[above]!] = node;
      next[above]! += 1;
    }
    return { caller, functions: Int32Array.from(this.functions), depth, first, callees };
  }
}

/** The weights of nodes: one column for a profile, two for a comparison. */
export interface Weights {
  /** The weight of the stacks that end at a node. */
  readonly own: readonly Float64Array[];
  /** The weight of the stacks that end or pass there. */
  readonly total: readonly Float64Array[];
}

/** Adds own weights up to totals. */
export function addUp(tree: CallTree, own: readonly Float64Array[]): Weights {
  const total = own.map((column) => {
    const sums = column.slice();
    for (let node = sums.length - 1; node > ROOT; node -= 1) {
      sums[tree.caller[node]!]! += sums[node]!;
    }
    return sums;
  });
  return { own, total };
}

/** Returns a node's weights, one for each column. */
export function weightsAt(columns: readonly Float64Array[], node: number): number[] {
  return columns.map((column) => column[node] ?? 0);
}
