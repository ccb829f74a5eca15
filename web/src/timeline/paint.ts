/** The colors and patterns of the timeline, from VS Code's theme. */

import type { ThreadState } from './data';

/** Colors and patterns. */
export interface Paint {
  text: string;
  dim: string;
  background: string;
  line: string;
  cursor: string;
  crash: string;
  focus: string;
  /** Set if the theme requires borders around boxes. */
  edge: string | undefined;
  calls: string[];
  states: Record<ThreadState, string>;
  font: string;
}

/** Reads the current theme. */
export function paint(): Paint {
  const style = getComputedStyle(document.body);
  const color = (name: string, otherwise: string) => style.getPropertyValue(`--vscode-${name}`).trim() || otherwise;
  const text = color('foreground', '#888');
  const edge = style.getPropertyValue('--vscode-contrastBorder').trim();
  const blue = color('charts-blue', '#3794ff');
  const green = color('charts-green', '#89d185');
  return {
    text,
    dim: color('descriptionForeground', text),
    background: color('panel-background', color('editor-background', 'transparent')),
    line: color('editorIndentGuide-background1', color('panel-border', '#8884')),
    cursor: color('charts-orange', '#d18616'),
    crash: color('charts-red', '#f14c4c'),
    focus: color('focusBorder', '#007fd4'),
    edge: edge === '' ? undefined : edge,
    calls: [blue, green, color('charts-yellow', '#cca700'), color('charts-purple', '#b180d7'), color('charts-orange', '#d18616')],
    states: {
      ran: green,
      offCpu: blue,
      both: green,
      unknown: color('descriptionForeground', '#888'),
      gap: color('charts-red', '#f14c4c'),
    },
    font: `${style.getPropertyValue('--vscode-font-size') || '13px'} ${style.getPropertyValue('--vscode-font-family') || 'sans-serif'}`,
  };
}

/** Draws a state. Each state has a pattern in addition to its color. */
export function drawState(context: CanvasRenderingContext2D, state: ThreadState, x: number, y: number, width: number, height: number, with_: Paint): void {
  const color = with_.states[state];
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.fillStyle = color;
  context.strokeStyle = color;
  context.lineWidth = 1;
  switch (state) {
    case 'ran':
      context.fillRect(x, y, width, height);
      break;
    case 'offCpu':
      context.fillRect(x, y + height - 4, width, 4);
      break;
    case 'both':
      context.fillRect(x, y + height - 4, width, 4);
      slanted(context, x, y, width, height, 5, 1);
      break;
    case 'unknown':
      context.setLineDash([2, 3]);
      context.beginPath();
      context.moveTo(x, y + height / 2);
      context.lineTo(x + width, y + height / 2);
      context.stroke();
      break;
    case 'gap':
      slanted(context, x, y, width, height, 6, 1);
      slanted(context, x, y, width, height, 6, -1);
      break;
  }
  context.restore();
}

function slanted(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, apart: number, way: 1 | -1): void {
  context.beginPath();
  // The pattern starts at the page's origin, so that adjacent boxes join.
  for (let at = Math.floor((x - height) / apart) * apart; at < x + width + height; at += apart) {
    context.moveTo(at, way > 0 ? y + height : y);
    context.lineTo(at + height, way > 0 ? y : y + height);
  }
  context.stroke();
}

/** Returns the color of a function's calls, which is the same for the same name. */
export function callColor(name: string, with_: Paint): string {
  let hash = 2166136261;
  for (let index = 0; index < name.length; index += 1) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 16777619);
  }
  return with_.calls[(hash >>> 0) % with_.calls.length] ?? with_.text;
}
