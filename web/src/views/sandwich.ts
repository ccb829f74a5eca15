/** The callers and callees of one function: two flame graphs, and two lists. */

import type { CallKind, CallSummary } from '../calls';
import { describeWeights } from '../describe';
import { element } from '../dom';
import { type WeighedTree, sandwich } from '../sandwich';
import type { State } from '../state';
import { ROOT, weightsAt } from '../tree';
import { CallView } from './call';
import { HubLinks } from './hub-links';
import { Graph } from './graph';

/** The longest list of direct callers or callees. */
const MAX_LISTED = 50;

/** The view of one function. */
export class SandwichView {
  readonly element: HTMLElement;
  private readonly title = element('h2', { tabindex: '-1' });
  private readonly note = element('p', { class: 'dim' });
  private readonly content = element('div', { hidden: true });
  private readonly callers: Graph;
  private readonly callees: Graph;
  private readonly lists = element('div', { class: 'columns' });
  private readonly call: CallView;
  private readonly hub: HubLinks;
  private fn: number | undefined;

  constructor(private readonly state: State) {
    // These trees join the calls of a function from all stacks.
    const callsOf = (_node: number, fn: number) => state.profile.calls?.ofFunction(fn);
    this.callers = new Graph(state, { label: 'Callers', isUpward: true, callsOf });
    this.callees = new Graph(state, { label: 'Callees', isUpward: false, callsOf });
    this.call = new CallView(state, () => this.selectedCalls());
    this.hub = new HubLinks(state);
    this.content.append(
      element('div', { class: 'tools' }, ...this.call.buttons, ...this.hub.elements), this.call.element,
      element('h3', {}, 'Callers'), this.callers.element,
      element('h3', {}, 'Callees'), this.callees.element, this.lists,
    );
    this.element = element('div', {}, this.title, this.note, this.content);
    this.title.textContent = 'No function is selected';
    this.note.textContent = 'Choose a function in the table, or press s on a frame of the flame graph.';
  }

  /** Selects a function, and moves the focus to its title. */
  select(fn: number): void {
    this.fn = fn;
    this.call.element.hidden = true;
    this.update();
    this.title.focus();
  }

  /** Reads the weights again. */
  update(): void {
    if (this.fn !== undefined) {
      this.show(this.fn);
    }
  }

  /** Draws again. */
  redraw(): void {
    this.callers.redraw();
    this.callees.redraw();
  }

  /** Opens a call of the function. */
  openCall(kind: CallKind): void {
    this.call.open(kind);
  }

  private selectedCalls(): { name: string; calls: CallSummary | undefined } {
    const { fn = -1, state } = this;
    return { name: state.terms.functionName(fn).name, calls: state.profile.calls?.ofFunction(fn) };
  }

  private show(fn: number): void {
    const { state } = this;
    const { profile, tree, weights, terms } = state;
    const parts = sandwich(tree, weights, fn, profile.functions.length);
    this.title.textContent = terms.functionName(fn).name;
    const total = weightsAt(parts.callees.weights.total, ROOT);
    const all = weightsAt(weights.total, ROOT);
    this.note.textContent = `total ${describeWeights(total, all, terms.unit)} of ${terms.event}`;
    if (parts.isCut) {
      this.note.textContent += '; the outermost callers of deep stacks are left out';
    }
    this.content.hidden = false;
    this.hub.show(fn);
    // Numbers of nodes hold for one selection only.
    this.callers.show(parts.callers, false);
    this.callees.show(parts.callees, false);
    this.lists.replaceChildren(this.list('Direct callers', parts.callers), this.list('Direct callees', parts.callees));
  }

  /** Returns the table of the function's direct callers or callees. */
  private list(caption: string, { tree, weights }: WeighedTree): HTMLElement {
    const { terms } = this.state;
    const nodes: number[] = [];
    for (let top = tree.first[ROOT]!; top < tree.first[ROOT + 1]!; top += 1) {
      const node = tree.callees[top]!;
      for (let at = tree.first[node]!; at < tree.first[node + 1]!; at += 1) {
        nodes.push(tree.callees[at]!);
      }
    }
    const all = weightsAt(weights.total, ROOT);
    const size = (node: number) => Math.max(...weightsAt(weights.total, node));
    const rows = nodes.sort((one, other) => size(other) - size(one)).slice(0, MAX_LISTED).map((node) => {
      const fn = tree.functions[node]!;
      const { name } = terms.functionName(fn);
      const select = () => this.state.selectFunction(fn);
      const button = element('button', { type: 'button', class: 'link', onclick: select }, name === '' ? 'no name' : name);
      const weight = describeWeights(weightsAt(weights.total, node), all, terms.unit);
      return element('tr', {}, element('td', {}, weight), element('th', { scope: 'row' }, button));
    });
    if (rows.length === 0) {
      rows.push(element('tr', {}, element('td', {}, 'none')));
    }
    const left = nodes.length - rows.length;
    const title = left > 0 ? `${caption}, the ${rows.length} largest of ${nodes.length}` : caption;
    return element('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': caption },
      element('table', {}, element('caption', {}, title), element('tbody', {}, ...rows)));
  }
}
