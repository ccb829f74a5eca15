/** The call tree as a table whose rows open, with the change of each node in a comparison. */

import { CHANGE_FILTERS, type ChangeFilter, shownCallees, shownNodes } from '../change_filter';
import { changeOf } from '../diff';
import { element } from '../dom';
import type { State } from '../state';
import { ROOT, type CallTree, weightsAt } from '../tree';
import { formatChange, formatPercent, formatWeight } from '../units';
import { HubLinks } from './hub-links';

/** The callees of a node that are shown at once. */
const PAGE = 100;
/** The most rows of the table. */
const MAX_ROWS = 5000;
/** The levels that are open at first, each with its first callee. */
const OPEN_LEVELS = 8;
/** The width of a level in pixels, and the deepest level that is wider. */
const [INDENT, MAX_INDENT] = [14, 24];

/** A row: a node at a level, or the number of its callees that are left out. */
interface Row {
  node: number;
  level: number;
  left: number;
}

/** A table of a call tree. */
export class TreeTable {
  readonly element: HTMLElement;
  private readonly body = element('tbody', { role: 'rowgroup' });
  private readonly head = element('tr', { role: 'row' });
  private readonly note = element('p', { class: 'dim' });
  private readonly hub: HubLinks;
  private readonly open = new Set<number>();
  /** The callees that are shown of nodes with many. */
  private readonly limits = new Map<number, number>();
  private tree: CallTree | undefined;
  private shown: Uint8Array = new Uint8Array();
  private rows: Row[] = [];
  private current = 0;
  private filter: ChangeFilter = 'all';

  constructor(private readonly state: State) {
    const { isComparison } = state.profile;
    const table = element('table', {
      role: 'treegrid', 'aria-label': 'Call tree. Arrow keys walk, open and close the rows, Enter shows callers and callees.',
      onkeydown: (event) => this.key(event as KeyboardEvent),
    }, element('thead', { role: 'rowgroup' }, this.head), this.body);
    const titles = isComparison ? ['Change', 'Difference', 'Before', 'After', 'Function'] : ['Total', 'Own', 'Function'];
    this.head.append(...titles.map((title) => element('th', { scope: 'col', role: 'columnheader' }, title)));
    const tools = element('div', { class: 'tools' });
    if (isComparison) {
      const select = element('select', { 'aria-label': 'Changes that the tree shows', onchange: () => {
        this.filter = select.value as ChangeFilter;
        this.begin();
        this.render();
        state.say(`${this.rows.length} rows`);
      } });
      select.append(...CHANGE_FILTERS.map(([value, title]) => element('option', { value }, title)));
      tools.append(select);
    }
    this.hub = new HubLinks(state);
    tools.append(element('button', { type: 'button', onclick: () => this.sandwich() }, 'Callers and callees'), ...this.hub.elements);
    const scroller = element('div', { class: 'wide tree' }, table);
    this.element = element('div', {}, tools, scroller, this.note);
  }

  /** Reads the tree and its weights again. */
  update(): void {
    const isNew = this.tree !== this.state.tree;
    this.tree = this.state.tree;
    this.shown = shownNodes(this.state.tree, this.state.weights, this.filter);
    if (isNew) {
      this.begin();
    }
    this.render();
  }

  /** Opens the path of the first callees. */
  private begin(): void {
    const { tree, weights } = this.state;
    this.shown = shownNodes(tree, weights, this.filter);
    this.open.clear();
    this.limits.clear();
    this.current = 0;
    for (let [node, level] = [ROOT, 0]; level < OPEN_LEVELS; level += 1) {
      const [first] = shownCallees(tree, weights, this.shown, node);
      if (first === undefined) {
        break;
      }
      if (node !== ROOT) {
        this.open.add(node);
      }
      node = first;
    }
  }

  private render(): void {
    const { tree, weights } = this.state;
    this.rows = [];
    const pending: Row[] = [{ node: ROOT, level: 0, left: 0 }];
    for (let row = pending.pop(); row !== undefined && this.rows.length < MAX_ROWS; row = pending.pop()) {
      if (row.node !== ROOT || row.left > 0) {
        this.rows.push(row);
      }
      if (row.left > 0 || (row.node !== ROOT && !this.open.has(row.node))) {
        continue;
      }
      const { node, level } = row;
      const callees = shownCallees(tree, weights, this.shown, node);
      const limit = this.limits.get(node) ?? PAGE;
      if (callees.length > limit) {
        pending.push({ node, level: level + 1, left: callees.length - limit });
      }
      pending.push(...callees.slice(0, limit).reverse().map((callee) => ({ node: callee, level: level + 1, left: 0 })));
    }
    this.current = Math.max(0, Math.min(this.current, this.rows.length - 1));
    this.body.replaceChildren(...this.rows.map((row, at) => this.rowOf(row, at)));
    this.note.textContent = this.rows.length === 0 ? 'No function has such a change.' : '';
    if (this.rows.length >= MAX_ROWS) {
      this.note.textContent = `The first ${MAX_ROWS} rows are shown. Close a row to see those below.`;
    }
    this.select(this.current, false);
  }

  private rowOf(row: Row, at: number): HTMLElement {
    const { node, level, left } = row;
    const attributes = {
      role: 'row', 'aria-level': String(level), tabindex: '-1',
      onclick: () => this.select(at, true), ondblclick: () => this.sandwich(),
    };
    const columns = this.state.profile.isComparison ? 4 : 2;
    if (left > 0) {
      const more = () => this.more(row);
      const button = element('button', { type: 'button', class: 'link', tabindex: '-1', onclick: more }, `${left} more with less`);
      const head = element('th', { role: 'rowheader', scope: 'row' }, this.indent(level), button);
      return element('tr', attributes, ...Array.from({ length: columns }, () => element('td', { role: 'gridcell' })), head);
    }
    const { name, file, module } = this.state.terms.functionName(this.state.tree.functions[node]!);
    const isOpen = this.open.has(node);
    const hasCallees = this.hasCallees(node);
    const toggle = element('span', { class: 'toggle', 'aria-hidden': 'true', onclick: (event) => {
      event.stopPropagation();
      this.current = at;
      this.toggle(node, !isOpen);
    } }, hasCallees ? (isOpen ? '▾' : '▸') : '');
    const isMatch = this.state.matches?.[this.state.tree.functions[node]!] === true;
    const place = [file.split('/').at(-1) ?? '', module].filter((text) => text !== '').join(', ');
    const shownName = name === '' ? 'no name' : name;
    const head = element('th', { role: 'rowheader', scope: 'row', title: file }, this.indent(level), toggle,
      isMatch ? element('mark', {}, shownName) : shownName, ' ', element('span', { class: 'dim' }, place));
    const made = element('tr', attributes, ...this.cells(node), head);
    if (hasCallees) {
      made.setAttribute('aria-expanded', String(isOpen));
    }
    if (this.shown[node] === 1) {
      made.classList.add('context');
    }
    return made;
  }

  private indent(level: number): HTMLElement {
    const space = element('span', { class: 'indent' });
    space.style.width = `${Math.min(level - 1, MAX_INDENT) * INDENT}px`;
    return space;
  }

  private cells(node: number): HTMLElement[] {
    const { weights, terms, profile } = this.state;
    const all = weightsAt(weights.total, ROOT);
    const text = (weight: number, column: number) => `${formatWeight(weight, terms.unit)} ${formatPercent(weight, all[column]!)}`;
    const cell = (text: string, kind = '') => element('td', { role: 'gridcell', class: kind }, text);
    const [before = 0, after = 0] = weightsAt(weights.total, node);
    if (!profile.isComparison) {
      return [cell(text(before, 0)), cell(text(weights.own[0]?.[node] ?? 0, 0))];
    }
    const change = changeOf(before, after);
    const color = { new: 'more', more: 'more', removed: 'less', less: 'less', same: '' }[change.kind];
    return [
      element('td', { role: 'gridcell' }, element('span', { class: `legend ${color}` }, change.text)),
      cell(formatChange(after - before, terms.unit)), cell(text(before, 0)), cell(text(after, 1)),
    ];
  }

  private hasCallees(node: number): boolean {
    const { tree } = this.state;
    return tree.callees.subarray(tree.first[node], tree.first[node + 1]).some((callee) => this.shown[callee] !== 0);
  }

  private toggle(node: number, isOpen: boolean): void {
    if (isOpen) {
      this.open.add(node);
    } else {
      this.open.delete(node);
    }
    this.render();
    this.select(this.current, true);
  }

  private more({ node }: Row): void {
    this.limits.set(node, (this.limits.get(node) ?? PAGE) + PAGE);
    this.render();
    this.select(this.current, true);
  }

  /** Makes a row the one that Tab reaches. */
  private select(at: number, takesFocus: boolean): void {
    const row = this.body.children[at] as HTMLElement | undefined;
    const before = this.body.children[this.current] as HTMLElement | undefined;
    before?.setAttribute('tabindex', '-1');
    before?.setAttribute('aria-selected', 'false');
    this.current = at;
    row?.setAttribute('tabindex', '0');
    row?.setAttribute('aria-selected', 'true');
    if (takesFocus) {
      row?.focus();
    }
    this.hub.show(this.functionAt(at));
  }

  private functionAt(at: number): number {
    const row = this.rows[at];
    return row === undefined || row.left > 0 ? -1 : this.state.tree.functions[row.node]!;
  }

  private sandwich(): void {
    const fn = this.functionAt(this.current);
    if (fn >= 0) {
      this.state.selectFunction(fn);
    }
  }

  private key(event: KeyboardEvent): void {
    const row = this.rows[this.current];
    if (event.ctrlKey || event.altKey || event.metaKey || row === undefined || !(event.target instanceof HTMLTableRowElement)) {
      return;
    }
    const isOpen = row.left === 0 && this.open.has(row.node);
    switch (event.key) {
      case 'ArrowDown':
        this.select(Math.min(this.current + 1, this.rows.length - 1), true);
        break;
      case 'ArrowUp':
        this.select(Math.max(this.current - 1, 0), true);
        break;
      case 'Home':
        this.select(0, true);
        break;
      case 'End':
        this.select(this.rows.length - 1, true);
        break;
      case 'ArrowRight':
        if (isOpen) {
          this.select(Math.min(this.current + 1, this.rows.length - 1), true);
        } else if (row.left === 0 && this.hasCallees(row.node)) {
          this.toggle(row.node, true);
        }
        break;
      case 'ArrowLeft':
        if (isOpen) {
          this.toggle(row.node, false);
        } else {
          this.select(this.callerRow(row), true);
        }
        break;
      case 'Enter':
        if (row.left > 0) {
          this.more(row);
        } else {
          this.sandwich();
        }
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  /** Returns the row of a row's caller, or the same row. */
  private callerRow({ level }: Row): number {
    for (let at = this.current - 1; at >= 0; at -= 1) {
      if (this.rows[at]!.level < level) {
        return at;
      }
    }
    return this.current;
  }
}
