/** The component: it builds the views of a profile in an element, and keeps their state. */

import type { CallKind } from './calls';
import type { ProfileData } from './data';
import { describeWeights } from './describe';
import { element } from './dom';
import { isTyping } from './keyboard';
import { heaviestLine } from './lines';
import { Profile, type Selection } from './model';
import type { Range } from './range';
import { compile, matchedWeight } from './search';
import { Searcher } from './searcher';
import type { Host, State } from './state';
import { ThemeSwitch, palette } from './theme';
import { ROOT, type Weights, weightsAt } from './tree';
import { formatPercent } from './units';
import { Graph } from './views/graph';
import { keysDialog } from './views/keys';
import { RangeView } from './views/range';
import { SandwichView } from './views/sandwich';
import { FunctionTable } from './views/table';
import { Tabs } from './views/tabs';

/** Shows a profile in an element. Returns what menus of an editor do. */
export function mount(root: HTMLElement, data: ProfileData, host: Host = {}): { openCall: (kind: CallKind) => void } {
  const page = new Page(data, host);
  root.replaceChildren(...page.parts());
  return { openCall: (kind) => page.openCall(kind) };
}

class Page implements State {
  readonly profile: Profile;
  weights: Weights;
  matches: readonly boolean[] | undefined;
  private readonly selection: Selection;
  private readonly theme = new ThemeSwitch(() => this.redraw());
  private readonly status = element('p', { class: 'hidden', role: 'status', 'aria-live': 'polite' });
  private readonly summary = element('p', { class: 'summary' });
  private readonly found = element('output', { class: 'found' });
  private readonly search: HTMLInputElement;
  private readonly searcher: Searcher;
  private readonly keys = keysDialog();
  private readonly range: RangeView | undefined;
  private readonly graph: Graph | undefined;
  private readonly table: FunctionTable;
  private readonly sandwich: SandwichView;
  private readonly tabs: Tabs;
  private isPending = false;

  constructor(
    data: ProfileData,
    readonly host: Host,
  ) {
    this.profile = new Profile(data);
    this.searcher = new Searcher(this.profile.functions);
    this.selection = { event: data.event, range: undefined, normalize: data.normalize };
    this.weights = this.profile.weigh(this.selection);
    this.search = element('input', {
      type: 'search', 'aria-label': 'Search functions by a regular expression', placeholder: 'Search (regular expression)',
      spellcheck: 'false', autocomplete: 'off', oninput: () => this.find(), onkeydown: (event) => this.searchKey(event as KeyboardEvent),
    });
    if (data.time !== null) {
      this.range = new RangeView(data.time, () => this.palette, (range) => this.select(range));
    }
    this.graph = new Graph(this, {
      label: 'Flame graph', isUpward: false, callsOf: (node) => this.profile.calls?.ofNode(node),
    });
    this.table = new FunctionTable(this);
    this.sandwich = new SandwichView(this);
    this.tabs = new Tabs([
      { id: 'graph', title: 'Flame graph', content: this.graph.element },
      { id: 'table', title: 'Table', content: this.table.element },
      { id: 'sandwich', title: 'Callers and callees', content: this.sandwich.element },
    ], () => this.redraw());
    document.addEventListener('keydown', (event) => this.key(event));
    this.graph.show({ tree: this.profile.tree, weights: this.weights }, false);
    this.update();
  }

  get palette() {
    return palette(this.theme.theme);
  }

  get terms() {
    const { name = '', unit = '' } = this.profile.data.events[this.selection.event] ?? {};
    return { event: name, unit, functionName: (fn: number) => this.profile.functionName(fn) };
  }

  /** Returns the elements of the page. */
  parts(): HTMLElement[] {
    const { data } = this.profile;
    const title = element('h1', {}, data.names.join(' → '));
    const help = element('button', { type: 'button', onclick: () => this.keys.showModal() }, 'Keys');
    const header = element('header', {}, title, element('div', { class: 'tools' }, ...this.choices(), this.search, this.theme.element, help));
    const main = element('main', {}, this.found, this.summary, ...(this.range ? [this.range.element] : []), this.tabs.element);
    if (this.profile.isComparison) {
      main.insertBefore(legend(), this.tabs.element);
    }
    if (data.notes.length > 0) {
      const notes = data.notes.map((note) => element('li', {}, note));
      main.append(element('h2', {}, 'Notes'), element('ul', { class: 'notes' }, ...notes));
    }
    return [header, main, this.status, this.keys];
  }

  say(text: string): void {
    this.status.textContent = text;
  }

  selectFunction(fn: number): void {
    this.tabs.open('sandwich');
    this.sandwich.select(fn);
    this.say(`callers and callees of ${this.profile.functionName(fn).name}`);
  }

  openSource(fn: number): void {
    const { file } = this.profile.functionName(fn);
    if (this.host.openSource !== undefined && file !== '') {
      this.host.openSource(file, heaviestLine(this.profile, this.selection, fn));
    } else {
      this.say(file === '' ? 'the source file is unknown' : 'this page has no editor');
    }
  }

  /** Opens a call of the focused frame, or of the function that the view shows. */
  openCall(kind: CallKind): void {
    if (this.tabs.shown === 'sandwich') {
      this.sandwich.openCall(kind);
    } else {
      this.graph?.openCall(kind);
    }
  }

  /** Returns the choice of the event, and the switch of a comparison. */
  private choices(): HTMLElement[] {
    const { data } = this.profile;
    const choices: HTMLElement[] = [];
    if (data.events.length > 1) {
      const select = element('select', { 'aria-label': 'Event', onchange: () => {
        this.selection.event = Number(select.value);
        this.update();
      } });
      select.append(...data.events.map(({ name }, at) => element('option', { value: String(at) }, name)));
      select.value = String(this.selection.event);
      choices.push(select);
    }
    if (this.profile.isComparison) {
      const box = element('input', { type: 'checkbox', onchange: () => {
        this.selection.normalize = box.checked;
        this.update();
      } });
      box.checked = this.selection.normalize;
      choices.push(element('label', {}, box, ' Scale to the same total'));
    }
    return choices;
  }

  private select(range: Range | undefined): void {
    this.selection.range = range;
    // A brush moves faster than large profiles are added up.
    if (!this.isPending) {
      this.isPending = true;
      requestAnimationFrame(() => {
        this.isPending = false;
        this.update();
      });
    }
  }

  /** Adds the selected samples up, and shows them. */
  private update(): void {
    this.weights = this.profile.weigh(this.selection);
    this.range?.show(this.profile.histogram(this.selection.event));
    this.graph?.show({ tree: this.profile.tree, weights: this.weights }, true);
    this.table.update();
    this.sandwich.update();
    const all = weightsAt(this.weights.total, ROOT);
    const range = this.selection.range === undefined ? '' : ', in the time range';
    this.summary.textContent = `${this.terms.event}: ${describeWeights(all, all, this.terms.unit)}${range}`;
    this.showFound();
    this.host.selected?.({ ...this.selection });
  }

  private redraw(): void {
    // The theme is applied before the views exist.
    this.graph?.redraw();
    this.sandwich?.redraw();
    this.range?.redraw();
  }

  private find(): void {
    void this.showMatches(this.search.value);
  }

  private async showMatches(pattern: string): Promise<void> {
    try {
      compile(pattern);
      const matches = pattern === '' ? undefined : await this.searcher.search(pattern);
      if (pattern !== this.search.value) {
        return;
      }
      this.matches = matches;
      this.search.removeAttribute('aria-invalid');
    } catch (error) {
      if (pattern === this.search.value) {
        this.matches = undefined;
        this.search.setAttribute('aria-invalid', 'true');
        this.found.textContent = error instanceof Error ? error.message : String(error);
        this.redraw();
      }
      return;
    }
    this.showFound();
    this.table.sort();
    this.redraw();
  }

  /** Shows the share of the stacks with a match. */
  private showFound(): void {
    const { matches, weights } = this;
    if (matches === undefined) {
      this.found.textContent = '';
      return;
    }
    const count = matches.filter(Boolean).length;
    const all = weightsAt(weights.total, ROOT);
    const shares = matchedWeight(this.profile.tree, weights, matches).map((sum, at) => formatPercent(sum, all[at]!));
    const share = shares.length > 1 ? `${shares[0]} before, ${shares[1]} after` : shares[0];
    this.found.textContent = `${count} ${count === 1 ? 'function matches' : 'functions match'}: ${share} of ${this.terms.event}`;
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.key === 'Escape' && this.search.value !== '') {
      event.preventDefault();
      this.search.value = '';
      this.find();
    }
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey || isTyping(event.target) || this.keys.open) {
      return;
    }
    if (event.key === '/') {
      this.search.focus();
      this.search.select();
    } else if (event.key === '?') {
      this.keys.showModal();
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Returns the meaning of colors and widths in a comparison. */
function legend(): HTMLElement {
  const sample = (kind: string, text: string) => element('span', { class: `legend ${kind}` }, text);
  return element('p', {}, sample('less', '−50% less, or removed'), ' ', sample('same', 'same'), ' ',
    sample('more', '+50% more, or new'), ' ', 'A frame is as wide as the larger of both weights.');
}
