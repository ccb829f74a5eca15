// The heat map: a click on a cell, a drag over several, or keys select a time. The event `part`
// has it as texts.
'use strict';
(() => {
  const figure = document.getElementById('heat');
  const brush = document.getElementById('heat-brush');
  const told = document.getElementById('heat-cell');
  if (figure === null || brush === null || told === null) {
    return;
  }
  const svg = brush.ownerSVGElement;
  const [start, step, rows, columns] = ['start', 'step', 'rows', 'columns'].map((name) => Number(figure.dataset[name]));
  const { unit } = figure.dataset;
  const weights = figure.dataset.weights.split(',').map(Number);
  const count = rows * columns;
  /** Returns a time in UTC, to the microsecond. */
  const time = (cell) => {
    const micros = start + cell * step;
    const milliseconds = Math.floor(micros / 1000);
    const rest = String(micros - milliseconds * 1000).padStart(3, '0');
    return `${new Date(milliseconds).toISOString().slice(0, 23)}${rest}`.replace(/\.?0+$/, '');
  };
  const amount = (weight) => (unit === 'nanoseconds' ? `${(weight / 1e6).toFixed(2)} ms` : `${weight} ${unit}`);
  /** The selected cells in the order of time: where a selection began, and its other end. */
  let [anchor, end] = [0, 0];
  let isDragging = false;

  const cellAt = (event) => {
    const box = svg.getBoundingClientRect();
    const at = (place, size, most) => Math.max(0, Math.min(most - 1, Math.floor((place / size) * most)));
    const column = at(event.clientX - box.left, box.width, columns);
    return column * rows + rows - 1 - at(event.clientY - box.top, box.height, rows);
  };
  const range = () => [Math.min(anchor, end), Math.max(anchor, end) + 1];
  const say = (from, to) => {
    const sum = weights.slice(from, to).reduce((sum, weight) => sum + weight, 0);
    told.textContent = `${time(from).replace('T', ' ')} to ${time(to).replace('T', ' ')} UTC: ${amount(sum)}`;
  };
  /** Draws the selected cells: a part of the first and of the last column, and all between. */
  const show = () => {
    const [from, to] = range();
    const parts = [];
    for (let cell = from; cell < to; ) {
      const column = Math.floor(cell / rows);
      const next = Math.min(to, (column + 1) * rows);
      parts.push(`M${column} ${(column + 1) * rows - next}h1v${next - cell}h-1z`);
      cell = next;
    }
    brush.setAttribute('d', parts.join(''));
    say(from, to);
  };
  const choose = () => {
    const [from, to] = range();
    document.dispatchEvent(new CustomEvent('part', { detail: { from: time(from), until: time(to) } }));
  };
  svg.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) {
      return;
    }
    const cell = cellAt(event);
    // With Shift, the selection grows to the cell.
    anchor = event.shiftKey ? anchor : cell;
    end = cell;
    isDragging = true;
    svg.setPointerCapture(event.pointerId);
    svg.focus({ preventScroll: true });
    event.preventDefault();
    show();
  });
  svg.addEventListener('pointermove', (event) => {
    const cell = cellAt(event);
    if (isDragging) {
      end = cell;
      show();
    } else {
      say(cell, cell + 1);
    }
  });
  svg.addEventListener('pointerup', () => {
    if (isDragging) {
      isDragging = false;
      choose();
    }
  });
  svg.addEventListener('pointercancel', () => {
    isDragging = false;
  });
  svg.addEventListener('focus', () => show());
  const STEPS = { ArrowUp: 1, ArrowDown: -1, ArrowRight: rows, ArrowLeft: -rows };
  svg.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) {
      return;
    }
    if (event.key === 'Enter') {
      choose();
    } else if (event.key in STEPS) {
      end = Math.max(0, Math.min(count - 1, end + STEPS[event.key]));
      anchor = event.shiftKey ? anchor : end;
      show();
    } else if (event.key === 'Home' || event.key === 'End') {
      end = event.key === 'Home' ? 0 : count - 1;
      anchor = event.shiftKey ? anchor : end;
      show();
    } else {
      return;
    }
    event.preventDefault();
  });
})();
