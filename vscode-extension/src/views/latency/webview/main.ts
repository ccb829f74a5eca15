/** The latency page: a function's durations, its histogram, and its calls. */

import type { Latency, LatencyRow } from '../../../protocol';
import { formatTime } from '../../../../../web/src/timeline/window';
import { joinRange } from '../../../../../web/src/units';
import { barsOf } from '../histogram';
import { type FromPage, type Query, ROWS, type Sort, type ToPage } from '../messages';

declare function acquireVsCodeApi(): { postMessage(message: FromPage): void };

const vscode = acquireVsCodeApi();
const element = <Kind extends HTMLElement>(id: string) => document.getElementById(id) as Kind;
const input = element<HTMLInputElement>('function');
const instructions = element<HTMLInputElement>('instructions');
const status = element('status');
const answer = element('answer');
const comparison = element('comparison');
const compare = element<HTMLButtonElement>('compare');

let query: Query = { function: '', instructions: false, sort: 'length', start: 0 };
/** The calls to compare, at most two, by their positions. */
let selected: string[] = [];

function make<Tag extends keyof HTMLElementTagNameMap>(tag: Tag, text?: string, kind?: string): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  if (text !== undefined) {
    made.textContent = text;
  }
  if (kind !== undefined) {
    made.className = kind;
  }
  return made;
}

function ask(change: Partial<Query>): void {
  query = { ...query, ...change };
  if (query.function !== '') {
    vscode.postMessage({ type: 'query', query });
  }
}

const count = (number: number) => number.toLocaleString('en-US');

function show(latency: Latency): void {
  input.value = query.function;
  instructions.checked = query.instructions;
  answer.hidden = false;
  const why = latency.noTime ? ' The trace has no time for these calls: instructions are counted instead.' : '';
  status.textContent = `${latency.function}: ${count(latency.calls)} calls, ${count(latency.measured)} of them measured.${why}`;
  showSpread(latency);
  showHistogram(latency);
  showRows(latency);
}

function showSpread(latency: Latency): void {
  const table = element('spread');
  table.replaceChildren(
    ...(latency.spread ?? []).map(({ name, length }) => {
      const row = make('tr');
      const head = make('th', name);
      head.scope = 'row';
      row.append(head, make('td', length.text, 'number'));
      return row;
    }),
  );
  element('unmeasured').replaceChildren(
    ...latency.unmeasured.map(({ reason, calls }) => make('p', `${count(calls)} not measured: ${reason}`)),
  );
}

const SVG = 'http://www.w3.org/2000/svg';

function showHistogram(latency: Latency): void {
  const head = make('tr');
  for (const title of ['Length', 'Calls', 'Uncertain', '']) {
    const cell = make('th', title, title === '' ? undefined : 'number');
    cell.scope = 'col';
    head.append(cell);
  }
  head.lastElementChild?.setAttribute('aria-hidden', 'true');
  const rows = barsOf(latency.histogram).map(({ bar, sure, unsure }) => {
    const row = make('tr');
    const name = make('th', joinRange(formatTime(bar.from, latency.unit), formatTime(bar.to, latency.unit)), 'number');
    name.scope = 'row';
    const picture = make('td', undefined, 'bar');
    picture.setAttribute('aria-hidden', 'true');
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('viewBox', '0 0 100 12');
    svg.setAttribute('preserveAspectRatio', 'none');
    for (const [kind, from, length] of [
      ['sure', 0, sure],
      ['unsure', sure, unsure],
    ] as const) {
      if (length > 0) {
        const rect = document.createElementNS(SVG, 'rect');
        rect.setAttribute('class', kind);
        rect.setAttribute('x', String(from * 100));
        rect.setAttribute('width', String(Math.max(length * 100, 0.5)));
        rect.setAttribute('y', '1');
        rect.setAttribute('height', '10');
        svg.append(rect);
      }
    }
    picture.append(svg);
    row.append(name, make('td', count(bar.calls), 'number'), make('td', bar.uncertain === 0 ? '' : count(bar.uncertain), 'number'), picture);
    return row;
  });
  const caption = make('caption', 'A call stands by the longest it can have taken; uncertain ones (dashed) may belong further up.', 'dim');
  element('histogram').replaceChildren(caption, head, ...rows);
}

function showRows({ rows, unit, measured }: Latency): void {
  const head = make('tr');
  const column = (title: string, sort?: Sort, kind?: string) => {
    const cell = make('th', undefined, kind);
    cell.scope = 'col';
    if (sort === undefined) {
      cell.textContent = title;
    } else {
      const isSorted = query.sort === sort;
      cell.setAttribute('aria-sort', isSorted ? (sort === 'length' ? 'descending' : 'ascending') : 'none');
      const button = make('button', `${title}${isSorted ? (sort === 'length' ? ' ▼' : ' ▲') : ''}`, 'plain');
      button.type = 'button';
      button.addEventListener('click', () => ask({ sort, start: 0 }));
      cell.append(button);
    }
    head.append(cell);
  };
  column('Compare');
  column('Call');
  column('Length', 'length', 'number');
  if (unit !== 'instructions') {
    column('Instructions', undefined, 'number');
  }
  column('Time', 'time', 'number');
  column('Thread', undefined, 'number');
  column('Called by');
  const body = make('tbody');
  body.append(...rows.map((row) => rowOf(row, unit)));
  const top = make('thead');
  top.append(head);
  element('rows').replaceChildren(top, body);
  const last = query.start + rows.length;
  element('page').textContent =
    rows.length === 0 ? 'no calls' : `${count(query.start + 1)} to ${count(last)} of ${count(measured)}`;
  element<HTMLButtonElement>('previous').disabled = query.start === 0;
  element<HTMLButtonElement>('next').disabled = rows.length < ROWS;
  showSelected();
}

function rowOf(row: LatencyRow, unit: Latency['unit']): HTMLTableRowElement {
  const made = make('tr');
  made.dataset['position'] = row.position;
  const name = row.call ?? row.position;
  const box = make('input');
  box.type = 'checkbox';
  box.checked = selected.includes(row.position);
  box.setAttribute('aria-label', `Select ${name} to compare`);
  box.addEventListener('change', () => select(row.position, box.checked));
  const boxed = make('td');
  boxed.append(box);
  const link = make('a', name);
  link.href = '#';
  link.title = `Go to ${row.position}`;
  link.setAttribute('aria-label', `Go to call ${name}, ${row.length.text}`);
  const linked = make('td');
  linked.append(link);
  made.append(boxed, linked, make('td', row.length.text, 'number'));
  if (unit !== 'instructions') {
    made.append(make('td', count(row.instructions), 'number'));
  }
  made.append(make('td', row.time?.text ?? '', 'number'), make('td', String(row.threadId), 'number'), make('td', row.caller ?? ''));
  made.addEventListener('click', (event) => {
    if (!boxed.contains(event.target as Node)) {
      event.preventDefault();
      vscode.postMessage({ type: 'goto', to: row.position });
    }
  });
  return made;
}

function select(position: string, isSelected: boolean): void {
  selected = selected.filter((one) => one !== position);
  if (isSelected) {
    // A third call replaces the first.
    selected = [...selected.slice(-1), position];
  }
  showSelected();
}

function showSelected(): void {
  for (const row of document.querySelectorAll<HTMLTableRowElement>('#rows tbody tr')) {
    const isSelected = selected.includes(row.dataset['position'] ?? '');
    row.setAttribute('aria-selected', String(isSelected));
    const box = row.querySelector('input');
    if (box !== null) {
      box.checked = isSelected;
    }
  }
  compare.disabled = selected.length !== 2;
}

element<HTMLFormElement>('form').addEventListener('submit', (event) => {
  event.preventDefault();
  selected = [];
  ask({ function: input.value.trim(), instructions: instructions.checked, start: 0 });
});
element('choose').addEventListener('click', () => vscode.postMessage({ type: 'choose' }));
instructions.addEventListener('change', () => ask({ instructions: instructions.checked, start: 0 }));
element('previous').addEventListener('click', () => ask({ start: Math.max(0, query.start - ROWS) }));
element('next').addEventListener('click', () => ask({ start: query.start + ROWS }));
compare.addEventListener('click', () => {
  const [first, second] = selected;
  if (first !== undefined && second !== undefined) {
    vscode.postMessage({ type: 'compare', calls: [first, second] });
  }
});

window.addEventListener('message', ({ data }: MessageEvent<ToPage>) => {
  switch (data.type) {
    case 'reset':
      query = { function: '', instructions: false, sort: 'length', start: 0 };
      selected = [];
      answer.hidden = true;
      comparison.hidden = true;
      status.textContent = data.isOpen ? 'Which function?' : 'How long the calls of a function took, as soon as a trace is open.';
      break;
    case 'busy':
      status.textContent = 'Measuring…';
      break;
    case 'failed':
      answer.hidden = true;
      status.textContent = data.text;
      break;
    case 'data':
      if (data.query.function !== query.function) {
        selected = [];
        comparison.hidden = true;
      }
      query = data.query;
      show(data.latency);
      break;
    case 'compared':
      comparison.hidden = false;
      element('text').textContent = data.text;
      comparison.scrollIntoView({ block: 'nearest' });
      break;
  }
});

vscode.postMessage({ type: 'ready' });
