/** The table of functions, which has the contents of the flame graph without a canvas. */

import { changeOf } from '../diff';
import { element } from '../dom';
import type { State } from '../state';
import { type Order, type SortKey, pressed, sorted } from '../table';
import { type FunctionWeight, totals } from '../totals';
import { ROOT, weightsAt } from '../tree';
import { formatChange, formatPercent, formatWeight } from '../units';
import { addressOf } from './hub-links';

/** The rows that are added at once. */
const PAGE = 200;

/** A column's head, and the cell of a row. */
interface Column {
  title: string;
  key: SortKey;
  cell: (row: FunctionWeight) => string;
  /** The part of all that the cell's bar shows. */
  part?: (row: FunctionWeight) => number;
}

/** A sortable table. */
export class FunctionTable {
  readonly element: HTMLElement;
  private readonly head = element('tr');
  private readonly body = element('tbody');
  private readonly caption = element('caption');
  private readonly more: HTMLButtonElement;
  private order: Order = { key: 'own', isAscending: false };
  private rows: FunctionWeight[] = [];
  private shown: FunctionWeight[] = [];

  constructor(private readonly state: State) {
    if (state.profile.isComparison) {
      this.order = { key: 'change', isAscending: false };
    }
    this.more = element('button', { type: 'button', onclick: () => this.add() }, 'Show more functions');
    const table = element('table', {}, this.caption, element('thead', {}, this.head), this.body);
    const scroller = element('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Functions' }, table);
    this.element = element('div', {}, scroller, this.more);
  }

  /** Reads the weights again. */
  update(): void {
    this.rows = totals(this.state.tree, this.state.weights);
    this.sort();
  }

  /** Shows the rows in their order, as after a search. */
  sort(): void {
    const { profile } = this.state;
    const matches = this.state.listsMatches ? this.state.matches : undefined;
    this.shown = sorted(this.rows, this.order, profile.functions, matches);
    const which = matches === undefined ? 'functions' : 'functions that match';
    this.caption.textContent = `${this.shown.length} ${which}, by ${this.state.terms.event}`;
    this.head.replaceChildren(...this.columns().map((column) => this.headOf(column)), this.headOf(NAME));
    this.body.replaceChildren();
    this.add();
  }

  private headOf({ title, key }: Pick<Column, 'title' | 'key'>): HTMLElement {
    const isSorted = this.order.key === key;
    const sort = isSorted ? (this.order.isAscending ? 'ascending' : 'descending') : 'none';
    const mark = isSorted ? (this.order.isAscending ? ' ▲' : ' ▼') : '';
    const press = () => {
      this.order = pressed(this.order, key);
      this.sort();
      const button = this.head.querySelector<HTMLElement>(`th[data-key=${key}][data-title="${title}"] button`);
      button?.focus();
      this.state.say(`sorted by ${title}, ${this.order.isAscending ? 'ascending' : 'descending'}`);
    };
    const button = element('button', { type: 'button', onclick: press }, title, element('span', { 'aria-hidden': 'true' }, mark));
    return element('th', { scope: 'col', 'aria-sort': sort, 'data-key': key, 'data-title': title }, button);
  }

  private columns(): Column[] {
    const { weights, terms, profile } = this.state;
    const all = weightsAt(weights.total, ROOT);
    const text = (weight: number, column: number) =>
      `${formatWeight(weight, terms.unit)} ${formatPercent(weight, all[column]!)}`;
    if (!profile.isComparison) {
      const part = (weight: number) => (all[0] === 0 ? 0 : weight / all[0]!);
      return [
        { title: 'Own', key: 'own', cell: (row) => text(row.own[0]!, 0), part: (row) => part(row.own[0]!) },
        { title: 'Total', key: 'total', cell: (row) => text(row.total[0]!, 0), part: (row) => part(row.total[0]!) },
      ];
    }
    const own = (row: FunctionWeight): [number, number] => [row.own[0] ?? 0, row.own[1] ?? 0];
    const total = (row: FunctionWeight): [number, number] => [row.total[0] ?? 0, row.total[1] ?? 0];
    const difference = ([before, after]: [number, number]) => formatChange(after - before, terms.unit);
    return [
      { title: 'Own change', key: 'change', cell: (row) => difference(own(row)) },
      { title: 'Change', key: 'change', cell: (row) => changeOf(...total(row)).text },
      { title: 'Own before', key: 'own', cell: (row) => text(row.own[0]!, 0) },
      { title: 'Own after', key: 'own', cell: (row) => text(row.own[1]!, 1) },
      { title: 'Total before', key: 'total', cell: (row) => text(row.total[0]!, 0) },
      { title: 'Total after', key: 'total', cell: (row) => text(row.total[1]!, 1) },
    ];
  }

  /** Adds the next rows. */
  private add(): void {
    const columns = this.columns();
    const from = this.body.childElementCount;
    this.body.append(...this.shown.slice(from, from + PAGE).map((row) => this.row(row, columns)));
    this.more.hidden = this.body.childElementCount >= this.shown.length;
  }

  private row(row: FunctionWeight, columns: readonly Column[]): HTMLElement {
    const { name, file, module } = this.state.terms.functionName(row.fn);
    const cells = columns.map((column) => {
      const cell = element('td', {}, column.cell(row));
      if (column.part !== undefined) {
        const part = Math.max(0, Math.min(1, column.part(row)));
        cell.style.backgroundSize = `${(part * 100).toFixed(2)}% 100%`;
      }
      return cell;
    });
    const select = () => this.state.selectFunction(row.fn);
    const button = element('button', { type: 'button', class: 'link', onclick: select }, name === '' ? 'no name' : name);
    const place = [file.split('/').at(-1) ?? '', module].filter((text) => text !== '').join(', ');
    const head = element('th', { scope: 'row', title: file }, button, ' ', element('span', { class: 'dim' }, place));
    const crashes = addressOf(this.state, 'crashes', name);
    if (crashes !== undefined && name !== '') {
      head.append(' ', element('a', { class: 'crashes', href: crashes, target: '_top', 'aria-label': `Crashes with ${name}` }, 'crashes'));
    }
    return element('tr', {}, ...cells, head);
  }
}

const NAME: Pick<Column, 'title' | 'key'> = { title: 'Function', key: 'name' };
