/** The link from a function to the crashes of a hub whose stacks have it. */

import { element } from '../dom';
import type { State } from '../state';

/** A link that changes with the focused function. Without a hub, there is none. */
export class CrashLink {
  readonly elements: HTMLElement[] = [];
  private readonly link: HTMLAnchorElement | undefined;

  constructor(private readonly state: State) {
    if (crashesOf(state, '') !== undefined) {
      this.link = element('a', { class: 'button', target: '_top', hidden: true }, 'Crashes with this function');
      this.elements.push(this.link);
    }
  }

  /** Links to the crashes with a function. Numbers below 0 are no functions. */
  show(fn: number): void {
    const { link, state } = this;
    if (link === undefined) {
      return;
    }
    const { name } = state.terms.functionName(fn);
    link.hidden = fn < 0 || name === '';
    link.href = crashesOf(state, name) ?? '';
  }

  /** Follows the link. */
  follow(): void {
    if (this.link !== undefined && !this.link.hidden) {
      this.link.click();
    } else {
      this.state.say(this.link === undefined ? 'this page has no crashes' : 'no function is selected');
    }
  }
}

/** Returns the address of the crashes with a function, or `undefined` without a hub. */
export function crashesOf({ profile }: State, name: string): string | undefined {
  const { crashes } = profile.data;
  return crashes === undefined || crashes === null ? undefined : crashes + encodeURIComponent(name);
}
