/** The timeline on the hub's page of a crash: it gets its data once, and selects positions. */

import type { Timeline } from './data';
import { narrowest } from './levels';
import type { FromPage, ToPage } from './messages';
import { mount } from './view';

const stage = document.getElementById('stage');
const source = stage?.dataset['source'];
if (stage !== null && source !== undefined) {
  void start(source);
}

/** Gets the charts, and answers the timeline out of them. */
async function start(source: string): Promise<void> {
  const loaded = load(source);
  const receive = mount((message) => void answer(message), { wheelNeedsControl: true });
  const answer = async (message: FromPage): Promise<void> => {
    if (message.type === 'want') {
      receive(respond(message, await loaded));
    } else if (message.type === 'goto') {
      // The scripts of the page follow the position in the address.
      location.hash = message.to;
    }
  };
  const commands: Record<string, Extract<ToPage, { type: 'command' }>['command']> = {
    'timeline-in': 'zoomIn', 'timeline-out': 'zoomOut', 'timeline-fit': 'fit', 'timeline-here': 'here',
  };
  for (const [id, command] of Object.entries(commands)) {
    document.getElementById(id)?.addEventListener('click', () => receive({ type: 'command', command }));
  }
  receive({ type: 'reset', state: 'open' });
}

/** Returns the charts, or the reason for which there are none. */
async function load(source: string): Promise<Timeline[] | string> {
  try {
    const response = await fetch(source, { credentials: 'same-origin' });
    if (!response.ok) {
      return `The timeline cannot be loaded: the hub answered ${response.status}.`;
    }
    return (await response.json()) as Timeline[];
  } catch {
    return 'The timeline cannot be loaded. Reload the page to try again.';
  }
}

/** Returns the answer to a request for a window of time. */
function respond(want: Extract<FromPage, { type: 'want' }>, charts: Timeline[] | string): ToPage {
  const { request } = want;
  if (typeof charts === 'string') {
    return { type: 'failed', request, text: charts };
  }
  const timeline = narrowest(charts, want.from, want.to);
  return timeline === undefined
    ? { type: 'failed', request, text: 'The crash has no history with calls.' }
    : { type: 'data', request, timeline };
}
