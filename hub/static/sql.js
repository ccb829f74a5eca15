// SQL over profiles: sends the query, and shows the answer as a table.
'use strict';
(() => {
  const form = document.getElementById('sql');
  const state = document.getElementById('state');
  const table = document.getElementById('result');
  const cancel = document.getElementById('cancel');
  if (form === null || state === null || table === null || cancel === null) {
    return;
  }
  const query = form.elements.namedItem('sql');
  let running;
  const cell = (kind, text) => {
    const element = document.createElement(kind);
    element.textContent = text;
    return element;
  };
  const text = (value) => (value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value));
  const show = ({ rows, coverage }) => {
    const names = (coverage.columns ?? []).map(({ name }) => name);
    const head = document.createElement('tr');
    head.append(...names.map((name) => cell('th', name)));
    const body = rows.map((row) => {
      const line = document.createElement('tr');
      line.append(...names.map((name) => {
        const data = cell('td', text(row[name]));
        if (typeof row[name] === 'number') {
          data.className = 'num';
        }
        return data;
      }));
      return line;
    });
    table.replaceChildren(head, ...body);
    const first = coverage.truncated ? 'the first ' : '';
    state.textContent = `${first}${rows.length} rows, from ${coverage.segments} of ${coverage.segments_total} segments with ${coverage.rows} samples and other rows`;
  };
  const run = async () => {
    running?.abort();
    const abort = new AbortController();
    running = abort;
    cancel.hidden = false;
    const begin = performance.now();
    const timer = setInterval(() => {
      state.textContent = `running for ${((performance.now() - begin) / 1000).toFixed(1)} s`;
    }, 100);
    try {
      const response = await fetch('/api/v1/profiles/sql', {
        method: 'POST', credentials: 'same-origin', signal: abort.signal, headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ sql: query.value, from: form.elements.namedItem('from').value }),
      });
      const answer = await response.json();
      clearInterval(timer);
      if (response.ok) {
        show(answer);
      } else {
        table.replaceChildren();
        state.textContent = answer.error;
      }
    } catch (error) {
      state.textContent = abort.signal.aborted ? 'canceled' : String(error);
    } finally {
      clearInterval(timer);
      if (running === abort) {
        cancel.hidden = true;
        running = undefined;
      }
    }
  };
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const address = new URLSearchParams({ sql: query.value, from: form.elements.namedItem('from').value });
    history.replaceState(null, '', `?${address}`);
    run();
  });
  cancel.addEventListener('click', () => running?.abort());
  query.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.ctrlKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  for (const button of form.querySelectorAll('button[data-sql]')) {
    button.addEventListener('click', () => {
      query.value = button.dataset.sql;
      query.focus();
    });
  }
})();
