// The explorer of profiles: fields complete from the store, and the view fits its window.
'use strict';
(() => {
  const form = document.getElementById('filters');
  if (form === null) {
    return;
  }
  // Empty fields stay out of the address, so that links are short.
  form.addEventListener('formdata', (event) => {
    for (const [name, value] of [...event.formData.entries()]) {
      if (value === '') {
        event.formData.delete(name);
      }
    }
  });
  const pending = new Map();
  const complete = async (input) => {
    const column = input.dataset.column;
    const list = document.getElementById(`values-${column}`);
    const query = new URLSearchParams({ column, prefix: input.value });
    for (const name of ['from', 'until', 'service']) {
      const value = form.elements.namedItem(name)?.value;
      if (value && name !== column) {
        query.set(name, value);
      }
    }
    pending.get(column)?.abort();
    const abort = new AbortController();
    pending.set(column, abort);
    try {
      const response = await fetch(`/api/v1/profiles/values?${query}`, { credentials: 'same-origin', signal: abort.signal });
      if (!response.ok) {
        return;
      }
      const { values } = await response.json();
      list.replaceChildren(...values.map((value) => {
        const option = document.createElement('option');
        option.value = value;
        return option;
      }));
    } catch {
      // The next key asks again.
    }
  };
  for (const input of form.querySelectorAll('input[data-column]')) {
    let timer;
    input.addEventListener('focus', () => complete(input), { once: true });
    input.addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(() => complete(input), 150);
    });
  }
  const series = document.getElementById('series');
  const brush = document.getElementById('brush');
  if (series === null || brush === null) {
    return;
  }
  const svg = brush.ownerSVGElement;
  const { width } = svg.viewBox.baseVal;
  const count = Number(series.dataset.count);
  const interval = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(count, ((event.clientX - box.left) / box.width) * count));
  };
  const text = (at) => new Date((Number(series.dataset.start) + Number(series.dataset.step) * at) / 1000).toISOString().slice(0, 19);
  let first;
  const show = (from, to) => {
    brush.setAttribute('x', String((Math.min(from, to) / count) * width));
    brush.setAttribute('width', String((Math.abs(to - from) / count) * width));
  };
  svg.addEventListener('pointerdown', (event) => {
    first = interval(event);
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  svg.addEventListener('pointermove', (event) => {
    if (first !== undefined) {
      show(first, interval(event));
    }
  });
  svg.addEventListener('pointerup', (event) => {
    const [from, to] = [Math.min(first, interval(event)), Math.max(first, interval(event))].map(Math.round);
    first = undefined;
    if (from === to) {
      show(0, 0);
      return;
    }
    form.elements.namedItem('from').value = text(from);
    form.elements.namedItem('until').value = text(to);
    form.requestSubmit();
  });
})();
