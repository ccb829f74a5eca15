// The brush of charts over time: a drag selects a shorter time. The event `times` has it as texts.
//
// A chart is a figure with `data-brush`, and the start, length and number of its intervals. Its
// drawing has a rectangle `brush`. Charts may come later than this script.
'use strict';
(() => {
  /** The drag: the drawing, its rectangle, the figure's numbers, and the place of its start. */
  let drag;
  /** Returns a time in UTC, to the microsecond. */
  const time = (micros) => {
    const milliseconds = Math.floor(micros / 1000);
    const rest = String(micros - milliseconds * 1000).padStart(3, '0');
    return `${new Date(milliseconds).toISOString().slice(0, 23)}${rest}`.replace(/\.?0+$/, '');
  };
  /** Returns the place of the pointer in intervals from the start. */
  const place = ({ svg, count }, event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(count, ((event.clientX - box.left) / box.width) * count));
  };
  const draw = ({ svg, brush, count }, from, to) => {
    const { width } = svg.viewBox.baseVal;
    brush.setAttribute('x', String((Math.min(from, to) / count) * width));
    brush.setAttribute('width', String((Math.abs(to - from) / count) * width));
  };
  document.addEventListener('pointerdown', (event) => {
    const svg = event.target instanceof Element ? event.target.closest('[data-brush] svg') : null;
    const brush = svg?.querySelector('rect.brush') ?? null;
    if (brush === null || event.button !== 0) {
      return;
    }
    const [start, step, count] = ['start', 'step', 'count'].map((name) => Number(svg.closest('[data-brush]').dataset[name]));
    drag = { svg, brush, start, step, count };
    drag.first = place(drag, event);
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  document.addEventListener('pointermove', (event) => {
    if (drag !== undefined) {
      draw(drag, drag.first, place(drag, event));
    }
  });
  document.addEventListener('pointerup', (event) => {
    if (drag === undefined) {
      return;
    }
    const { first, start, step } = drag;
    const [from, to] = [first, place(drag, event)].sort((a, b) => a - b).map(Math.round);
    if (from === to) {
      draw(drag, 0, 0);
    } else {
      const detail = { from: time(start + step * from), until: time(start + step * to) };
      document.dispatchEvent(new CustomEvent('times', { detail }));
    }
    drag = undefined;
  });
  // A finger that scrolls selects nothing.
  document.addEventListener('pointercancel', () => {
    if (drag !== undefined) {
      draw(drag, 0, 0);
      drag = undefined;
    }
  });
})();
