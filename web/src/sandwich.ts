/** The callers and callees of one function. */

import { type CallTree, ROOT, TreeBuilder, type Weights, addUp } from './tree';

/** A tree with its weights. */
export interface WeighedTree {
  tree: CallTree;
  weights: Weights;
}

/** The frames of all stacks of callers that are read. A stack's share is at least `MIN_DEPTH`. */
const MAX_FRAMES = 1 << 21;
/** The callers of a stack that are always read. */
const MIN_DEPTH = 16;

/** Both trees begin at the function's outermost call in each stack, and have the same total. */
export interface Sandwich {
  /** From the function outward. */
  callers: WeighedTree;
  /** Whether the outermost callers of deep stacks are left out. */
  isCut: boolean;
  /** From the function inward. */
  callees: WeighedTree;
}

/** Returns the callers and callees of a function. */
export function sandwich(tree: CallTree, weights: Weights, fn: number, functionCount: number): Sandwich {
  const [inward, outward] = [new TreeBuilder(functionCount), new TreeBuilder(functionCount)];
  // The node of each node in the tree of callees. -1: not called by the function.
  const nodes = new Int32Array(tree.caller.length).fill(-1);
  const outermost: number[] = [];
  const hasWeight = (node: number) => weights.total.some((column) => column[node] !== 0);
  for (let node = ROOT + 1; node < nodes.length; node += 1) {
    const above = nodes[tree.caller[node]!]!;
    if (above >= 0) {
      nodes[node] = inward.callee(above, tree.functions[node]!);
    } else if (tree.functions[node] === fn && hasWeight(node)) {
      nodes[node] = inward.callee(ROOT, fn);
      outermost.push(node);
    }
  }
  const depth = Math.max(MIN_DEPTH, Math.floor(MAX_FRAMES / Math.max(1, outermost.length)));
  const ends = outermost.map((node): [number, number] => [node, path(tree, node, depth, outward)]);
  return {
    callers: callersOf(weights, outward, ends),
    isCut: outermost.some((node) => tree.depth[node]! > depth),
    callees: calleesOf(weights, inward, nodes),
  };
}

/** Adds a node and its callers, and returns the node of the last one. */
function path(tree: CallTree, node: number, depth: number, outward: TreeBuilder): number {
  let at = ROOT;
  for (let from = node, left = depth; from !== ROOT && left > 0; from = tree.caller[from]!, left -= 1) {
    at = outward.callee(at, tree.functions[from]!);
  }
  return at;
}

function callersOf(weights: Weights, outward: TreeBuilder, outermost: readonly [number, number][]): WeighedTree {
  const tree = outward.finish();
  const own = weights.total.map((column) => {
    const sums = new Float64Array(tree.caller.length);
    for (const [node, end] of outermost) {
      sums[end]! += column[node]!;
    }
    return sums;
  });
  return { tree, weights: addUp(tree, own) };
}

function calleesOf(weights: Weights, inward: TreeBuilder, nodes: Int32Array): WeighedTree {
  const tree = inward.finish();
  const own = weights.own.map((column) => {
    const sums = new Float64Array(tree.caller.length);
    nodes.forEach((to, node) => {
      if (to >= 0) {
        sums[to]! += column[node]!;
      }
    });
    return sums;
  });
  return { tree, weights: addUp(tree, own) };
}
