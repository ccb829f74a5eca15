/** The places of frames in a flame graph, which are computed once for a selection. */

import { type CallTree, ROOT, type Weights } from './tree';

/** Narrower frames are not drawn, in pixels. */
export const MIN_WIDTH = 0.5;

/** A frame to draw, in pixels from the left edge. The row is its depth. */
export interface Box {
  node: number;
  row: number;
  left: number;
  width: number;
}

/** A part of the whole width: its first place and its size, in units of weights. */
export interface Span {
  from: number;
  size: number;
}

/** A laid out tree. Callees are in the order of their sizes, the largest first. */
export class Layout {
  /** The size of each node. In a comparison, the larger weight of each stack decides. */
  readonly size: Float64Array;
  private readonly left: Float64Array;
  private readonly callees: Int32Array;

  constructor(
    readonly tree: CallTree,
    weights: Weights,
  ) {
    const count = tree.caller.length;
    this.size = new Float64Array(count);
    for (let node = count - 1; node >= ROOT; node -= 1) {
      // A negative weight has no width.
      this.size[node]! += Math.max(0, ...weights.own.map((column) => column[node]!));
      if (node !== ROOT) {
        this.size[tree.caller[node]!]! += this.size[node]!;
      }
    }
    this.left = new Float64Array(count);
    this.callees = tree.callees.slice();
    for (let node = ROOT; node < count; node += 1) {
      const callees = this.callees.subarray(tree.first[node], tree.first[node + 1]);
      if (callees.length > 1) {
        callees.sort((one, other) => this.size[other]! - this.size[one]! || one - other);
      }
      let left = this.left[node]!;
      for (const callee of callees) {
        this.left[callee] = left;
        left += this.size[callee]!;
      }
    }
  }

  /** Returns the callees of a node, the largest first. */
  calleesOf(node: number): Int32Array {
    return this.callees.subarray(this.tree.first[node], this.tree.first[node + 1]);
  }

  /** Returns the box of a node if `zoom` has the whole width. Its width may be below a pixel. */
  box(node: number, zoom: number, width: number): Box {
    const row = this.tree.depth[node]!;
    if (row <= this.tree.depth[zoom]!) {
      return { node, row, left: 0, width };
    }
    const scale = this.scale(zoom, width);
    return { node, row, left: (this.left[node]! - this.left[zoom]!) * scale, width: this.size[node]! * scale };
  }

  /** Returns the frames that are wide enough, callers first. `zoom` has the whole width. */
  boxes(zoom: number, width: number): Box[] {
    if (this.size[zoom] === 0) {
      return [];
    }
    const boxes: Box[] = [];
    for (let node = zoom; node !== ROOT; ) {
      node = this.tree.caller[node]!;
      boxes.push(this.box(node, zoom, width));
    }
    boxes.reverse();
    const least = MIN_WIDTH / this.scale(zoom, width);
    const pending = [zoom];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      boxes.push(this.box(node, zoom, width));
      for (const callee of this.calleesOf(node)) {
        if (this.size[callee]! < least || this.size[callee] === 0) {
          break;
        }
        pending.push(callee);
      }
    }
    return boxes;
  }

  /** Returns the part of the whole width that a frame has. */
  spanOf(node: number): Span {
    return { from: this.left[node]!, size: this.size[node]! };
  }

  /** Returns the frames that are wide enough in a part of the whole width, callers first. */
  boxesIn(span: Span, width: number): Box[] {
    if (span.size <= 0 || this.size[ROOT] === 0) {
      return [];
    }
    const boxes: Box[] = [];
    const scale = width / span.size;
    const [least, end] = [MIN_WIDTH / scale, span.from + span.size];
    const pending = [ROOT];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      const from = Math.max(this.left[node]!, span.from);
      const to = Math.min(this.left[node]! + this.size[node]!, end);
      boxes.push({ node, row: this.tree.depth[node]!, left: (from - span.from) * scale, width: (to - from) * scale });
      const callees = this.calleesOf(node);
      for (let at = this.firstAfter(callees, span.from); at < callees.length; at += 1) {
        const callee = callees[at]!;
        const left = this.left[callee]!;
        // Smaller ones follow, and those that are further to the right.
        if (left >= end || this.size[callee]! < least) {
          break;
        }
        if (Math.min(left + this.size[callee]!, end) - Math.max(left, span.from) >= least) {
          pending.push(callee);
        }
      }
    }
    return boxes;
  }

  /** Returns the first of some callees that ends after a place. */
  private firstAfter(callees: Int32Array, place: number): number {
    let [low, high] = [0, callees.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.left[callees[middle]!]! + this.size[callees[middle]!]! <= place) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Returns the frame at a pixel of a row. */
  at(zoom: number, width: number, x: number, row: number): number | undefined {
    const depth = this.tree.depth[zoom]!;
    let node = zoom;
    if (row <= depth) {
      for (let up = depth; up > row; up -= 1) {
        node = this.tree.caller[node]!;
      }
      return row < 0 ? undefined : node;
    }
    const place = this.left[zoom]! + x / this.scale(zoom, width);
    for (let down = depth; down < row; down += 1) {
      const callee = this.calleeAt(node, place);
      if (callee === undefined) {
        return undefined;
      }
      node = callee;
    }
    return node;
  }

  private calleeAt(node: number, place: number): number | undefined {
    const callees = this.calleesOf(node);
    let [low, high] = [0, callees.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.left[callees[middle]!]! <= place) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    // Callees without a size follow all others.
    for (let at = low - 1; at >= 0; at -= 1) {
      const callee = callees[at]!;
      if (this.size[callee]! > 0) {
        return place < this.left[callee]! + this.size[callee]! ? callee : undefined;
      }
    }
    return undefined;
  }

  private scale(zoom: number, width: number): number {
    const size = this.size[zoom]!;
    return size === 0 ? 0 : width / size;
  }
}
