/** The keys of the views, and the walk over frames by arrow keys. */

import type { Box } from './layout';

/** Directions of the walk. */
export type Direction = 'caller' | 'callee' | 'left' | 'right';

/** The keys with what they do, for the list of keys. */
export const KEYS: readonly [string, string][] = [
  ['← →', 'go to the next frame of the same depth'],
  ['↑ ↓', 'go to the caller, or to the largest callee'],
  ['Home', 'go to the outermost frame'],
  ['Enter', 'zoom to the frame'],
  ['Escape', 'go back to the zoom before'],
  ['s', 'show callers and callees of the function'],
  ['o', 'open the source, in an editor'],
  ['c', 'open the slowest call, of a recording with all calls'],
  ['t', 'open a typical call: the one with the median length'],
  ['x', 'show crashes with the function, of a hub'],
  ['e', 'show exact calls of the function, of a hub'],
  ['/', 'search'],
  ['?', 'show this list'],
];

/** Returns the direction of a key. Callees are below their callers, or above them if `isUpward`. */
export function directionOf(key: string, isUpward: boolean): Direction | undefined {
  switch (key) {
    case 'ArrowLeft':
      return 'left';
    case 'ArrowRight':
      return 'right';
    case 'ArrowUp':
      return isUpward ? 'callee' : 'caller';
    case 'ArrowDown':
      return isUpward ? 'caller' : 'callee';
    default:
      return undefined;
  }
}

/** Returns the frame in a direction among the drawn ones, or the same one at the edge. */
export function walk(boxes: readonly Box[], callerOf: (node: number) => number, node: number, to: Direction): number {
  const box = boxes.find((one) => one.node === node);
  if (box === undefined) {
    return boxes[0]?.node ?? node;
  }
  if (to === 'caller') {
    return callerOf(node);
  }
  if (to === 'callee') {
    const callees = boxes.filter((one) => one.row === box.row + 1 && callerOf(one.node) === node);
    return leftmost(callees)?.node ?? node;
  }
  const row = boxes.filter((one) => one.row === box.row);
  const before = row.filter((one) => one.left < box.left);
  const after = row.filter((one) => one.left > box.left);
  const next = to === 'left' ? before.sort((one, other) => other.left - one.left)[0] : leftmost(after);
  return next?.node ?? node;
}

function leftmost(boxes: readonly Box[]): Box | undefined {
  return boxes.reduce<Box | undefined>((first, box) => (first === undefined || box.left < first.left ? box : first), undefined);
}

/** Returns whether a key belongs to the element that has the focus, as to a text box. */
export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches('input:not([type=range]):not([type=checkbox]), textarea, select');
}
