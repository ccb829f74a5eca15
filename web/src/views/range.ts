/** The histogram over time, with a range that a brush or two sliders select. */

import type { TimeAxis } from '../data';
import { element, prepare } from '../dom';
import { type Range, bars, brushed, selectedRange, slid } from '../range';
import type { Palette } from '../theme';
import { formatWeight } from '../units';

/** The height of the canvas in pixels. */
const HEIGHT = 64;
/** The width of a bar in pixels. */
const BAR = 3;

/** The view of the time range. */
export class RangeView {
  readonly element: HTMLElement;
  private readonly canvas = element('canvas', { 'aria-hidden': 'true' });
  private readonly from: HTMLInputElement;
  private readonly to: HTMLInputElement;
  private readonly text = element('span', { class: 'dim' });
  private readonly all: HTMLButtonElement;
  private histogram: Float64Array = new Float64Array();
  private range: Range;
  /** The pixel where the pointer went down. */
  private start: number | undefined;

  /** `changed` gets the range, or `undefined` for all samples. */
  constructor(
    private readonly axis: TimeAxis,
    private readonly palette: () => Palette,
    private readonly changed: (range: Range | undefined) => void,
  ) {
    this.range = [0, axis.count];
    const slider = (label: string, moved: 'from' | 'to') =>
      element('input', {
        type: 'range', min: '0', max: String(axis.count), step: '1', 'aria-label': label,
        oninput: () => this.set(slid(this.from.valueAsNumber, this.to.valueAsNumber, moved, axis.count)),
      });
    this.from = slider('Begin of the time range', 'from');
    this.to = slider('End of the time range', 'to');
    this.all = element('button', { type: 'button', onclick: () => this.set([0, axis.count]) }, 'All times');
    const { canvas } = this;
    canvas.addEventListener('pointerdown', (event) => this.down(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    canvas.addEventListener('pointerup', () => { this.start = undefined; });
    canvas.addEventListener('pointercancel', () => { this.start = undefined; });
    const tools = element('div', { class: 'tools' }, this.from, this.to, this.all, this.text);
    this.element = element('section', { class: 'range', 'aria-label': 'Time range' }, canvas, tools);
    new ResizeObserver(() => this.redraw()).observe(this.element);
    this.label();
  }

  /** Shows another event's weight over time. */
  show(histogram: Float64Array): void {
    this.histogram = histogram;
    this.redraw();
  }

  /** Draws again. */
  redraw(): void {
    const width = this.element.clientWidth;
    if (width === 0) {
      return;
    }
    const palette = this.palette();
    const context = prepare(this.canvas, width, HEIGHT);
    context.fillStyle = palette.background;
    context.fillRect(0, 0, width, HEIGHT);
    const sums = bars(this.histogram, Math.floor(width / BAR));
    const most = sums.reduce((most, weight) => Math.max(most, weight), 0);
    const step = width / Math.max(1, sums.length);
    context.fillStyle = palette.bar;
    sums.forEach((weight, at) => {
      const height = most === 0 ? 0 : (Math.max(0, weight) / most) * (HEIGHT - 4);
      context.fillRect(at * step, HEIGHT - height, Math.max(1, step - 1), height);
    });
    const [left, right] = this.range.map((place) => (place / this.axis.count) * width) as [number, number];
    context.globalAlpha = 0.7;
    context.fillStyle = palette.faded;
    context.fillRect(0, 0, left, HEIGHT);
    context.fillRect(right, 0, width - right, HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = palette.focus;
    context.strokeRect(left + 0.5, 0.5, Math.max(1, right - left - 1), HEIGHT - 1);
  }

  private down(event: PointerEvent): void {
    this.canvas.setPointerCapture(event.pointerId);
    this.start = event.offsetX;
    this.move(event);
  }

  private move(event: PointerEvent): void {
    if (this.start !== undefined) {
      this.set(brushed(this.start, event.offsetX, this.element.clientWidth, this.axis.count));
    }
  }

  private set(range: Range): void {
    const isSame = range[0] === this.range[0] && range[1] === this.range[1];
    this.range = range;
    this.label();
    this.redraw();
    if (!isSame) {
      this.changed(selectedRange(range, this.axis.count));
    }
  }

  private label(): void {
    const [from, to] = this.range;
    const text = (place: number) => formatWeight(place * this.axis.width, 'nanoseconds');
    this.from.value = String(from);
    this.to.value = String(to);
    this.from.setAttribute('aria-valuetext', text(from));
    this.to.setAttribute('aria-valuetext', text(to));
    this.all.disabled = selectedRange(this.range, this.axis.count) === undefined;
    const begin = new Date(this.axis.start).toISOString().replace('T', ' ');
    this.text.textContent = `${text(from)} to ${text(to)} after ${begin}`;
  }
}
