/** Labels that fit a width: the longest of several texts, cut at its end if none fits. */

import type { TimelineThread } from './data';

/** Returns the first text that is at most `width` wide; otherwise the last one, cut. */
export function fitting(texts: readonly string[], width: number, measure: (text: string) => number): string {
  const fits = texts.find((text) => measure(text) <= width);
  const shortest = texts.at(-1) ?? '';
  return fits ?? cut(shortest, width, measure);
}

/** Returns the width of the widest name of the threads. */
export function widestName(threads: readonly TimelineThread[], measure: (text: string) => number): number {
  return Math.max(0, ...threads.map((thread) => measure(threadLabels(thread).at(-1) ?? '')));
}

/** Cuts a text at its end, and marks the cut. */
function cut(text: string, width: number, measure: (text: string) => number): string {
  const characters = [...text];
  for (let kept = characters.length - 1; kept > 0; kept -= 1) {
    const shown = `${characters.slice(0, kept).join('')}…`;
    if (measure(shown) <= width) {
      return shown;
    }
  }
  return '…';
}

/** Returns the labels of a thread, the longest first. Its name says more than its id. */
export function threadLabels({ threadId, name, current, crashed }: TimelineThread): string[] {
  const marks = `${current ? '→ ' : ''}${crashed ? '✕ ' : ''}`;
  return name === '' ? [`${marks}${threadId}`] : [`${marks}${threadId} ${name}`, `${marks}${name}`];
}
