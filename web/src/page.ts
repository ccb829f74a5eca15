/** The component: it builds the views of a profile in an element, and keeps their state. */

import type { CallKind } from './calls';
import type { ProfileData } from './data';
import { describeWeights } from './describe';
import { element } from './dom';
import { isTyping } from './keyboard';
import { KEEPS, type Keep, keepCallees, keepCallers } from './keep';
import { heaviestLine } from './lines';
import { Profile, type Selection } from './model';
import type { Range } from './range';
import { compile, matchedWeight } from './search';
import { Searcher } from './searcher';
import type { Host, State } from './state';
import { ThemeSwitch, palette } from './theme';
import { type CallTree, ROOT, type Weights, weightsAt } from './tree';
import { formatPercent } from './units';
import { Graph } from './views/graph';
import { keysDialog } from './views/keys';
import { RangeView } from './views/range';
import { SandwichView } from './views/sandwich';
import { FunctionTable } from './views/table';
import { Tabs } from './views/tabs';
import { TreeTable } from './views/tree';

/** Shows a profile in an element. Returns what menus of an editor do. */
export function mount(root: HTMLElement, data: ProfileData, host: Host = {}): { openCall: (kind: CallKind) => void } {
  const page = new Page(data, host);
  root.replaceChildren(...page.parts());
  return { openCall: (kind) => page.openCall(kind) };
}

class Page implements State {
  readonly profile: Profile;
  tree: CallTree;
  weights: Weights;
  /** The weights of whole stacks. */
  private all: Weights;
  private keep: Keep = 'all';
  private readonly keeps: HTMLSelectElement;
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
  private readonly calls: TreeTable;
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
    this.all = this.profile.weigh(this.selection);
    this.tree = this.profile.tree;
    this.weights = this.all;
    this.search = element('input', {
      type: 'search', 'aria-label': 'Search functions by a regular expression', placeholder: 'Search (regular expression)',
      spellcheck: 'false', autocomplete: 'off', oninput: () => this.find(), onkeydown: (event) => this.searchKey(event as KeyboardEvent),
    });
    this.keeps = element('select', { 'aria-label': 'Parts of stacks', onchange: () => {
      this.keep = this.keeps.value as Keep;
      this.update();
      this.choose();
    } });
    this.keeps.append(...KEEPS.map(([value, title]) => element('option', { value }, title)));
    if (data.time !== null) {
      this.range = new RangeView(data.time, () => this.palette, (range) => this.select(range));
    }
    this.graph = new Graph(this, {
      label: 'Flame graph', isUpward: false, callsOf: (node, fn) => (this.tree === this.profile.tree ? this.profile.calls?.ofNode(node) : this.profile.calls?.ofFunction(fn)),
    });
    this.table = new FunctionTable(this);
    this.calls = new TreeTable(this);
    this.sandwich = new SandwichView(this);
    this.tabs = new Tabs([
      { id: 'graph', title: 'Flame graph', content: this.graph.element },
      { id: 'table', title: 'Table', content: this.table.element },
      { id: 'tree', title: 'Tree', content: this.calls.element },
      { id: 'sandwich', title: 'Callers and callees', content: this.sandwich.element },
    ], () => {
      this.redraw();
      this.choose();
    });
    document.addEventListener('keydown', (event) => this.key(event));
    this.graph.show({ tree: this.tree, weights: this.weights }, false);
    this.update();
    this.begin();
  }

  get palette() {
    return palette(this.theme.theme);
  }

  get terms() {
    const { name = '', unit = '' } = this.profile.data.events[this.selection.event] ?? {};
    return { event: name, unit, functionName: (fn: number) => this.profile.functionName(fn) };
  }

  get listsMatches(): boolean {
    return this.keep === 'all';
  }

  /** Applies the choices of a link. */
  private begin(): void {
    const { find = '', keep = 'all', view = '' } = this.host.choices ?? {};
    this.keep = keep;
    this.keeps.value = keep;
    this.search.value = find;
    if (view !== '') {
      this.tabs.open(view);
    }
    if (find !== '') {
      this.find();
    }
  }

  /** Reports the choices to the page around. */
  private choose(): void {
    const view = { graph: '', sandwich: '' }[this.tabs.shown] ?? this.tabs.shown;
    this.host.chosen?.({ find: this.search.value, keep: this.keep, view });
  }

  /** Returns the elements of the page. */
  parts(): HTMLElement[] {
    const { data } = this.profile;
    const title = element('h1', {}, data.names.join(' → '));
    const help = element('button', { type: 'button', onclick: () => this.keys.showModal() }, 'Keys');
    const header = element('header', {}, title, element('div', { class: 'tools' }, ...this.choices(), this.search, this.keeps, this.theme.element, help));
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
    this.all = this.profile.weigh(this.selection);
    const hadTree = this.tree;
    ({ tree: this.tree, weights: this.weights } = this.kept());
    this.range?.show(this.profile.histogram(this.selection.event));
    this.graph?.show({ tree: this.tree, weights: this.weights }, this.tree === hadTree);
    this.table.update();
    this.calls.update();
    this.sandwich.update();
    const all = weightsAt(this.weights.total, ROOT);
    const parts = [this.selection.range === undefined ? '' : ', in the time range'];
    if (this.matches !== undefined && this.keep !== 'all') {
      parts.push(`, with the ${this.keep} of matches only`);
    }
    this.summary.textContent = `${this.terms.event}: ${describeWeights(all, all, this.terms.unit)}${parts.join('')}`;
    this.showFound();
    this.host.selected?.({ ...this.selection });
  }

  /** Returns the kept parts of stacks. */
  private kept(): { tree: CallTree; weights: Weights } {
    const { tree, functions } = this.profile;
    const { matches, all } = this;
    if (matches === undefined || this.keep === 'all') {
      return { tree, weights: all };
    }
    return this.keep === 'callers' ? keepCallers(tree, all.own, matches) : keepCallees(tree, all.own, matches, functions.length);
  }

  private redraw(): void {
    // The theme is applied before the views exist.
    this.graph?.redraw();
    this.sandwich?.redraw();
    this.range?.redraw();
  }

  private find(): void {
    void this.showMatches(this.search.value);
    this.choose();
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
        this.update();
        this.found.textContent = error instanceof Error ? error.message : String(error);
      }
      return;
    }
    if (this.keep === 'all') {
      this.showFound();
      this.table.sort();
      this.calls.update();
      this.redraw();
    } else {
      this.update();
    }
  }

  /** Shows the share of the stacks with a match. */
  private showFound(): void {
    const { matches, all: weights } = this;
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
