/** The call that a user opens: a sentence, and the command if the page has no debugger. */

import { type CallKind, type CallSummary, commandOf, describeCall } from '../calls';
import { element } from '../dom';
import type { State } from '../state';

/** The titles of buttons and menus. */
const TITLES: Record<CallKind, string> = { slowest: 'Open the slowest call', typical: 'Open a typical call' };

/** Buttons that open a call of the focused frame, and the line below them. */
export class CallView {
  readonly buttons: HTMLElement[] = [];
  readonly element = element('div', { hidden: true });

  /** `focused` returns the name and the calls of the focused frame. */
  constructor(
    private readonly state: State,
    private readonly focused: () => { name: string; calls: CallSummary | undefined },
  ) {
    if (state.profile.calls !== undefined) {
      const button = (kind: CallKind) => element('button', { type: 'button', onclick: () => this.open(kind) }, TITLES[kind]);
      this.buttons.push(button('slowest'), button('typical'));
    }
  }

  /** Opens a call of the focused frame, or shows how. */
  open(kind: CallKind): void {
    const all = this.state.profile.calls;
    if (all === undefined) {
      this.state.say('this profile has samples and no calls');
      return;
    }
    const { name, calls } = this.focused();
    const sentence = describeCall(name, kind, calls, all.data.unit);
    const call = calls?.[kind] ?? null;
    const parts: Node[] = [element('p', {}, sentence)];
    if (call !== null && this.state.host.openCall !== undefined) {
      this.state.host.openCall(call[0]);
    } else if (call !== null) {
      parts.push(command(commandOf(all.data, call), (text) => this.state.say(text)));
    }
    this.element.replaceChildren(...parts);
    this.element.hidden = false;
    this.state.say(sentence);
  }
}

/** Returns a command with a button that copies it. */
function command(text: string, say: (text: string) => void): HTMLElement {
  const copy = () => {
    void navigator.clipboard.writeText(text).then(() => say('copied'), () => say('the browser does not copy; select the command'));
  };
  const parts: HTMLElement[] = [element('code', { class: 'command', tabindex: '0' }, text)];
  // Browsers have no clipboard for pages of plain HTTP.
  if ('clipboard' in navigator) {
    parts.push(element('button', { type: 'button', onclick: copy }, 'Copy the command'));
  }
  return element('div', { class: 'tools' }, ...parts);
}
