/** The description of an item in the timeline, for its tooltip and for screen readers. */

import type { ThreadState, Timeline } from './data';
import type { Hit } from './layout';
import { type Span, formatTime } from './window';

/** The names of thread states. */
export const STATE_NAMES: Record<ThreadState, string> = {
  ran: 'ran',
  offCpu: 'off-CPU',
  both: 'ran and waited',
  unknown: 'unknown: no time stamp tells',
  gap: 'history is missing',
};

/** Returns some lines about an item. */
export function described(found: Hit, timeline: Timeline): string {
  const { thread } = found.track;
  const place = `thread ${thread.threadId} ${thread.name}${thread.current ? ', the current one' : ''}`;
  switch (found.kind) {
    case 'call': {
      const { call } = found;
      const name = call.several ? `several calls, among them ${call.function}` : call.function;
      const library = timeline.libraries?.[call.function];
      const from = library === undefined ? '' : ` (${library})`;
      const named = call.call === undefined ? '' : `, ${call.call}`;
      return `${name}${from}\n${stretch(call, timeline)}\n${place}, level ${call.level}${named} ${call.position}`;
    }
    case 'state': {
      const { span } = found;
      const cause = span.cause === undefined ? '' : `: ${span.cause}`;
      return `${STATE_NAMES[span.state]}${cause}\n${stretch(span, timeline)}\n${place}`;
    }
    case 'thread':
      return place;
  }
}

/** Formats a span, and marks ends outside the requested window as cut off. */
function stretch({ from, to }: Span, timeline: Timeline): string {
  const before = timeline.from > timeline.begin && from <= timeline.from ? 'before ' : '';
  const after = timeline.to < timeline.end && to >= timeline.to ? 'after ' : '';
  const least = before === '' && after === '' ? '' : 'more than ';
  const exact = (to - from) / 100;
  const { unit } = timeline;
  return `${least}${formatTime(to - from, unit)}, from ${before}${formatTime(from, unit, exact)} to ${after}${formatTime(to, unit, exact)}`;
}
