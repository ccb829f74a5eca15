/** Draws the frames of a flame graph. */

import type { Change } from './diff';
import type { Box } from './layout';
import type { Palette } from './theme';

/** The height of a frame in CSS pixels, with the gap below it. */
export const ROW = 20;
/** Narrower frames have no label, in pixels. */
const MIN_LABEL = 24;

/** The contents of the canvas. */
export interface Picture {
  boxes: readonly Box[];
  /** The number of rows of the whole graph. */
  rows: number;
  isUpward: boolean;
  /** The visible part. */
  scroll: number;
  width: number;
  height: number;
  palette: Palette;
  focused: number;
  name: (node: number) => string;
  /** The color of a frame without a search or a change. */
  color: (node: number) => string;
  /** Whether a search matches. `undefined`: no search. */
  isMatch: ((node: number) => boolean) | undefined;
  /** The change, in a comparison. */
  change: ((node: number) => Change) | undefined;
}

/** Returns the top of a row in the whole graph. */
export function topOf(row: number, rows: number, isUpward: boolean): number {
  return (isUpward ? rows - 1 - row : row) * ROW;
}

/** Draws the visible frames. */
export function draw(context: CanvasRenderingContext2D, picture: Picture): void {
  const { palette, width, height, rows, isUpward, scroll } = picture;
  context.fillStyle = palette.background;
  context.fillRect(0, 0, width, height);
  context.font = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
  context.textBaseline = 'middle';
  // The font has characters of one width.
  const character = context.measureText('0').width;
  let focused: [Box, number] | undefined;
  for (const box of picture.boxes) {
    const top = topOf(box.row, rows, isUpward) - scroll;
    if (top + ROW < 0 || top > height) {
      continue;
    }
    context.fillStyle = fill(picture, box.node);
    // Wide frames have a gap to the next one.
    context.fillRect(box.left, top, Math.max(box.width - (box.width > 3 ? 1 : 0), 0.5), ROW - 1);
    if (box.width >= MIN_LABEL) {
      context.fillStyle = palette.text;
      context.fillText(label(picture, box, character), box.left + 4, top + ROW / 2);
    }
    if (box.node === picture.focused) {
      focused = [box, top];
    }
  }
  if (focused !== undefined) {
    const [box, top] = focused;
    context.strokeStyle = palette.focus;
    context.lineWidth = 2;
    context.strokeRect(box.left + 1, top + 1, Math.max(box.width - 3, 1), ROW - 3);
  }
}

function fill({ palette, isMatch, change, color }: Picture, node: number): string {
  if (isMatch !== undefined) {
    return isMatch(node) ? palette.match : palette.faded;
  }
  if (change !== undefined) {
    return palette.change(change(node).ratio);
  }
  return color(node);
}

/** Returns the part of the label that fits. In a comparison, the change comes first. */
function label({ name, change }: Picture, box: Box, character: number): string {
  const room = Math.max(0, Math.floor((box.width - 8) / character));
  const { kind, text } = change?.(box.node) ?? { kind: 'same', text: '' };
  // Long names of templates are cut before they are joined.
  const whole = kind === 'same' ? name(box.node).slice(0, room + 1) : `${text} ${name(box.node).slice(0, room + 1)}`;
  return whole.length > room ? `${whole.slice(0, Math.max(0, room - 1))}…` : whole;
}
