/** The legend of the bars, below the timeline. */

import { STATE_NAMES } from './describe';
import { type Paint, drawState } from './paint';

/** Draws a sample of each state, and its name. */
export function legend(colors: Paint): void {
  const place = document.getElementById('legend') as HTMLDivElement;
  place.replaceChildren();
  for (const state of ['ran', 'offCpu', 'both', 'unknown', 'gap'] as const) {
    const sample = document.createElement('canvas');
    sample.className = 'sample';
    sample.width = 44;
    sample.height = 24;
    sample.setAttribute('aria-hidden', 'true');
    const drawing = sample.getContext('2d');
    if (drawing !== null) {
      drawing.scale(2, 2);
      drawState(drawing, state, 0, 0, 22, 12, colors);
    }
    const label = document.createElement('span');
    label.append(sample, STATE_NAMES[state]);
    place.append(label);
  }
}
