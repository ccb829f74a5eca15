/** A flame graph: a canvas that draws a call tree, and takes keys and the pointer. */

import type { CallKind, CallSummary } from '../calls';
import { describe } from '../describe';
import { changeOf } from '../diff';
import { element, prepare } from '../dom';
import { ROW, draw, topOf } from '../draw';
import { directionOf, walk } from '../keyboard';
import { type Box, Layout, type Span } from '../layout';
import type { WeighedTree } from '../sandwich';
import type { State } from '../state';
import type { Palette } from '../theme';
import { ROOT } from '../tree';
import { ZOOM_TIME, between } from '../zoom';
import { CallView } from './call';
import { HubLinks } from './hub-links';

/** The differences between flame graphs. */
export interface GraphOptions {
  label: string;
  /** Callees, or the callers of a sandwich, are above instead of below. */
  isUpward: boolean;
  /** Returns the calls of a node. */
  callsOf: (node: number, fn: number) => CallSummary | undefined;
}

/** A flame graph. */
export class Graph {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly scroller: HTMLElement;
  private readonly tall: HTMLElement;
  private readonly detail: HTMLElement;
  private readonly back: HTMLButtonElement;
  private readonly call: CallView;
  private readonly hub: HubLinks;
  private shown: (WeighedTree & { layout: Layout }) | undefined;
  private boxes: Box[] = [];
  private rows = 1;
  private width = 0;
  private zoom = ROOT;
  private focused = ROOT;
  /** The zooms to go back to. */
  private readonly history: number[] = [];
  private isPending = false;
  /** The colors of functions, because a zoom draws many pictures. */
  private colors: { palette: Palette; of: Map<number, string> };
  /** A zoom that is on its way: its begin, its start and its end. */
  private moving: { begin: number; start: Span; end: Span } | undefined;

  constructor(
    private readonly state: State,
    private readonly options: GraphOptions,
  ) {
    this.colors = { palette: state.palette, of: new Map() };
    this.canvas = element('canvas', {
      tabindex: '0',
      role: 'application',
      'aria-label': `${options.label}. Arrow keys walk the frames, Enter zooms, Escape goes back. The table has the same functions.`,
      onkeydown: (event) => this.key(event as KeyboardEvent),
      onclick: (event) => this.click(event as MouseEvent),
      onmousemove: (event) => this.hover(event as MouseEvent),
      onmouseleave: () => this.describe(this.focused),
      onfocus: () => this.say(),
      oncontextmenu: (event) => this.focusAt(event as MouseEvent),
    });
    this.tall = element('div', {}, this.canvas);
    this.scroller = element('div', { class: 'graph', onscroll: () => this.redraw() }, this.tall);
    this.detail = element('p', { class: 'detail' });
    this.back = element('button', { type: 'button', onclick: () => this.goBack() }, 'Zoom back');
    const sandwich = element('button', { type: 'button', onclick: () => this.sandwich() }, 'Callers and callees');
    const tools = element('div', { class: 'tools' }, this.back, sandwich);
    if (state.host.openSource !== undefined) {
      tools.append(element('button', { type: 'button', onclick: () => this.source() }, 'Open source'));
    }
    this.call = new CallView(state, () => this.focusedCalls());
    this.hub = new HubLinks(state);
    tools.append(...this.call.buttons, ...this.hub.elements);
    this.element = element('div', {}, this.scroller, this.detail, tools, this.call.element);
    new ResizeObserver(() => this.resize()).observe(this.scroller);
  }

  /** Shows a tree. `keeps`: the tree has the nodes of the one before. */
  show(tree: WeighedTree, keeps: boolean): void {
    this.shown = { ...tree, layout: new Layout(tree.tree, tree.weights) };
    this.moving = undefined;
    const isLost = (node: number) => !keeps || this.shown?.layout.size[node] === 0;
    if (isLost(this.zoom)) {
      this.zoom = ROOT;
    }
    if (isLost(this.focused)) {
      this.focused = this.zoom;
    }
    if (!keeps) {
      this.history.length = 0;
    }
    this.place();
    if (!keeps) {
      this.reveal();
    }
    this.describe(this.focused);
    this.hub.show(this.functionOf(this.focused));
  }

  /** Draws again, as after a change of colors. */
  redraw(): void {
    if (!this.isPending) {
      this.isPending = true;
      requestAnimationFrame(() => {
        this.isPending = false;
        this.paint();
      });
    }
  }

  /** Opens a call of the focused frame. */
  openCall(kind: CallKind): void {
    this.call.open(kind);
  }

  private functionOf(node: number): number {
    return this.shown?.tree.functions[node] ?? -1;
  }

  private focusedCalls(): { name: string; calls: CallSummary | undefined } {
    const fn = this.functionOf(this.focused);
    return { name: this.state.terms.functionName(fn).name, calls: this.options.callsOf(this.focused, fn) };
  }

  private resize(): void {
    if (this.scroller.clientWidth !== this.width) {
      const wasHidden = this.width === 0;
      this.place();
      if (wasHidden) {
        this.reveal();
      }
    }
    this.redraw();
  }

  /** Computes the boxes of a zoom. */
  private place(): void {
    this.width = this.scroller.clientWidth;
    this.boxes = this.shown?.layout.boxes(this.zoom, this.width) ?? [];
    this.rows = this.boxes.reduce((rows, box) => Math.max(rows, box.row + 1), 1);
    this.tall.style.height = `${this.rows * ROW}px`;
    this.back.disabled = this.zoom === ROOT;
    this.redraw();
  }

  private paint(): void {
    const { shown, state } = this;
    const height = Math.min(this.scroller.clientHeight, this.rows * ROW);
    if (shown === undefined || this.width === 0) {
      return;
    }
    const functionOf = (node: number) => shown.tree.functions[node]!;
    const name = (node: number) => state.terms.functionName(functionOf(node));
    const [before, after] = shown.weights.total;
    const boxes = this.movingBoxes(shown.layout) ?? this.boxes;
    draw(prepare(this.canvas, this.width, height), {
      boxes,
      rows: this.rows,
      isUpward: this.options.isUpward,
      scroll: this.scroller.scrollTop,
      width: this.width,
      height,
      palette: state.palette,
      focused: this.focused,
      name: (node) => name(node).name,
      color: (node) => (node === ROOT ? state.palette.faded : this.colorOf(functionOf(node))),
      isMatch: state.matches && ((node) => state.matches?.[functionOf(node)] === true),
      change: before && after && ((node) => changeOf(before[node]!, after[node]!)),
    });
  }

  /** Returns the color of a function. The module decides the hue, or what else is known. */
  private colorOf(fn: number): string {
    const { palette } = this.state;
    if (this.colors.palette !== palette) {
      this.colors = { palette, of: new Map() };
    }
    let color = this.colors.of.get(fn);
    if (color === undefined) {
      const { name, file, module } = this.state.terms.functionName(fn);
      color = palette.frame(module || file || name, name);
      this.colors.of.set(fn, color);
    }
    return color;
  }

  /** Returns the boxes of a zoom that is on its way, and draws again soon. */
  private movingBoxes(layout: Layout): Box[] | undefined {
    if (this.moving === undefined) {
      return undefined;
    }
    const { begin, start, end } = this.moving;
    const time = (performance.now() - begin) / ZOOM_TIME;
    if (time >= 1) {
      this.moving = undefined;
      return undefined;
    }
    this.redraw();
    return layout.boxesIn(between(start, end, time), this.width);
  }

  /** Places the boxes of another zoom, and moves there. */
  private move(zoom: number): void {
    const start = this.shown?.layout.spanOf(this.zoom);
    this.zoom = zoom;
    this.place();
    this.reveal();
    const end = this.shown?.layout.spanOf(zoom);
    const isStill = window.matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.moving = isStill || start === undefined || end === undefined ? undefined : { begin: performance.now(), start, end };
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey || this.shown === undefined) {
      return;
    }
    const direction = directionOf(event.key, this.options.isUpward);
    if (direction !== undefined) {
      const { caller } = this.shown.tree;
      this.focus(walk(this.boxes, (node) => caller[node]!, this.focused, direction));
    } else if (event.key === 'Home') {
      this.focus(ROOT);
    } else if (event.key === 'Enter') {
      this.zoomTo(this.focused);
    } else if (event.key === 'Escape') {
      this.goBack();
    } else if (event.key === 's') {
      this.sandwich();
    } else if (event.key === 'o') {
      this.source();
    } else if (event.key === 'x') {
      this.hub.follow('crashes');
    } else if (event.key === 'e') {
      this.hub.follow('exact_calls');
    } else if (event.key === 'c' || event.key === 't') {
      this.openCall(event.key === 'c' ? 'slowest' : 'typical');
    } else {
      return;
    }
    event.preventDefault();
  }

  private nodeAt(event: MouseEvent): number | undefined {
    const bounds = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - bounds.top + this.scroller.scrollTop) / ROW);
    const depth = this.options.isUpward ? this.rows - 1 - row : row;
    return this.shown?.layout.at(this.zoom, this.width, event.clientX - bounds.left, depth);
  }

  private click(event: MouseEvent): void {
    const node = this.nodeAt(event);
    if (node !== undefined) {
      this.focus(node);
      this.zoomTo(node);
    }
  }

  /** Moves the focus to the frame of a menu. */
  private focusAt(event: MouseEvent): void {
    const node = this.nodeAt(event);
    if (node !== undefined) {
      this.focus(node);
    }
  }

  private hover(event: MouseEvent): void {
    const node = this.nodeAt(event);
    this.canvas.style.cursor = node === undefined ? 'default' : 'pointer';
    this.describe(node ?? this.focused);
  }

  private focus(node: number): void {
    if (node !== this.focused) {
      this.call.element.hidden = true;
    }
    this.focused = node;
    this.hub.show(this.functionOf(node));
    this.reveal();
    this.redraw();
    this.say();
  }

  private zoomTo(node: number): void {
    if (node !== this.zoom) {
      this.history.push(this.zoom);
      this.move(node);
      this.state.say(`zoomed; ${this.text(node)}`);
    }
  }

  private goBack(): void {
    if (this.zoom !== ROOT) {
      this.move(this.history.pop() ?? ROOT);
      this.state.say(`zoomed out; ${this.text(this.zoom)}`);
    }
  }

  private sandwich(): void {
    const fn = this.functionOf(this.focused);
    if (fn >= 0) {
      this.state.selectFunction(fn);
    }
  }

  private source(): void {
    this.state.openSource(this.functionOf(this.focused));
  }

  /** Scrolls to the focused frame. */
  private reveal(): void {
    const row = this.shown?.tree.depth[this.focused] ?? 0;
    const top = topOf(row, this.rows, this.options.isUpward);
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) {
      this.scroller.scrollTop = top;
    } else if (top + ROW > scrollTop + clientHeight) {
      this.scroller.scrollTop = top + ROW - clientHeight;
    }
  }

  private text(node: number): string {
    const { shown } = this;
    return shown === undefined ? '' : describe(shown.tree, shown.weights, node, this.state.terms, this.options.isUpward);
  }

  private describe(node: number): void {
    this.detail.textContent = this.text(node);
  }

  private say(): void {
    this.describe(this.focused);
    this.state.say(this.text(this.focused));
  }
}
