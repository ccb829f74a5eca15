/** The links from a function to a hub: to crashes with it on their stacks, and to exact calls. */

import { element } from '../dom';
import type { State } from '../state';

/** The pages of a hub for a function. */
export type HubPage = 'crashes' | 'exact_calls';

const LABELS: Readonly<Record<HubPage, string>> = {
  crashes: 'Crashes with this function',
  exact_calls: 'Open an exact call',
};

/** Links that change with the focused function. Without a hub, there are none. */
export class HubLinks {
  readonly elements: HTMLElement[] = [];
  private readonly links: [HubPage, HTMLAnchorElement][] = [];

  constructor(private readonly state: State) {
    for (const page of ['crashes', 'exact_calls'] as const) {
      if (addressOf(state, page, '') !== undefined) {
        const link = element('a', { class: 'button', target: '_top', hidden: true }, LABELS[page]);
        this.links.push([page, link]);
        this.elements.push(link);
      }
    }
  }

  /** Links to the pages of a function. Numbers below 0 are no functions. */
  show(fn: number): void {
    const { name } = this.state.terms.functionName(fn);
    for (const [page, link] of this.links) {
      link.hidden = fn < 0 || name === '';
      link.href = addressOf(this.state, page, name) ?? '';
    }
  }

  /** Follows the link to a page. */
  follow(page: HubPage): void {
    const link = this.links.find(([one]) => one === page)?.[1];
    if (link !== undefined && !link.hidden) {
      link.click();
    } else {
      this.state.say(link === undefined ? 'this page has no hub' : 'no function is selected');
    }
  }
}

/** Returns the address of a hub's page of a function, or `undefined` without a hub. */
export function addressOf({ profile }: State, page: HubPage, name: string): string | undefined {
  const address = profile.data[page];
  return address === undefined || address === null ? undefined : address + encodeURIComponent(name);
}
