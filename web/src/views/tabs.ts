/** Tabs: one view at a time, with the arrow keys between their names. */

import { element } from '../dom';

/** A view with its name. */
export interface Tab {
  id: string;
  title: string;
  content: HTMLElement;
}

/** A list of tabs with their panels. */
export class Tabs {
  readonly element: HTMLElement;
  private readonly buttons: HTMLButtonElement[];
  private readonly panels: HTMLElement[];
  private current = 0;

  constructor(
    private readonly tabs: readonly Tab[],
    private readonly changed: (id: string) => void,
  ) {
    this.buttons = tabs.map(({ id, title }, at) =>
      element('button', {
        type: 'button', role: 'tab', id: `tab-${id}`, 'aria-controls': `panel-${id}`,
        onclick: () => this.show(at), onkeydown: (event) => this.key(event as KeyboardEvent),
      }, title));
    this.panels = tabs.map(({ id, content }) =>
      element('div', { role: 'tabpanel', id: `panel-${id}`, 'aria-labelledby': `tab-${id}` }, content));
    const list = element('div', { role: 'tablist', 'aria-label': 'Views' }, ...this.buttons);
    this.element = element('div', {}, list, ...this.panels);
    this.mark();
  }

  /** The id of the shown tab. */
  get shown(): string {
    return this.tabs[this.current]?.id ?? '';
  }

  /** Shows a tab by its id, if there is one. */
  open(id: string): void {
    const at = this.tabs.findIndex((tab) => tab.id === id);
    if (at >= 0) {
      this.show(at);
    }
  }

  private show(at: number): void {
    this.current = at;
    this.mark();
    this.changed(this.shown);
  }

  private key(event: KeyboardEvent): void {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.show((this.current + step + this.tabs.length) % this.tabs.length);
      this.buttons[this.current]?.focus();
    }
  }

  private mark(): void {
    this.buttons.forEach((button, at) => {
      button.setAttribute('aria-selected', String(at === this.current));
      button.tabIndex = at === this.current ? 0 : -1;
    });
    this.panels.forEach((panel, at) => {
      panel.hidden = at !== this.current;
    });
  }
}
