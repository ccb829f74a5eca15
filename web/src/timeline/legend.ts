/** The legend of the bars, below the timeline. */

import type { ThreadState, Timeline } from './data';
import { STATE_NAMES } from './describe';
import { type Paint, drawState } from './paint';

/** The states in the order of the legend, and their short names. */
const SHORT_NAMES: Record<ThreadState, string> = {
  ran: 'ran',
  offCpu: 'off-CPU',
  both: 'both',
  unknown: 'unknown',
  gap: 'missing',
};

/** Returns the states of the threads, in the order of the legend. */
export function statesOf({ threads }: Timeline): ThreadState[] {
  const found = new Set(threads.flatMap((thread) => thread.states.map(({ state }) => state)));
  return (Object.keys(SHORT_NAMES) as ThreadState[]).filter((state) => found.has(state));
}

/** Draws a sample of each of the states, and its name. */
export function legend(states: readonly ThreadState[], colors: Paint): void {
  const place = document.getElementById('legend') as HTMLDivElement;
  place.replaceChildren();
  for (const state of states) {
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
    label.append(sample, SHORT_NAMES[state]);
    label.title = STATE_NAMES[state];
    place.append(label);
  }
}
