// SQL over profiles: sends the query, and shows the answer as a table or another view.
'use strict';
(() => {
  const form = document.getElementById('sql');
  const state = document.getElementById('state');
  const answer = document.getElementById('answer');
  const table = document.getElementById('result');
  const chart = document.getElementById('chart');
  const cancel = document.getElementById('cancel');
  if ([form, state, answer, table, chart, cancel].includes(null)) {
    return;
  }
  /** The longest address. Servers and browsers refuse longer ones. */
  const LONGEST = 60_000;
  const field = (name) => form.elements.namedItem(name);
  const query = field('sql');
  const view = field('as');
  /** The run that has not ended. */
  let running;
  /** Whether a query was run. */
  let hasRun = false;
  /** Returns the fields that say something. */
  const fields = () => new URLSearchParams([...new FormData(form).entries()].filter(([, value]) => value !== ''));

  const cell = (kind, text) => {
    const element = document.createElement(kind);
    element.textContent = text;
    return element;
  };
  const text = (value) => (value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value));
  /** Removes the last answer. A frame that loads ends its query. */
  const clear = () => {
    table.replaceChildren();
    chart.replaceChildren();
    answer.hidden = true;
  };
  const showTable = ({ rows, coverage, sites = [], notes = [] }) => {
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
    answer.hidden = false;
    const first = coverage.truncated ? 'the first ' : '';
    const time = coverage.from ? `, from ${coverage.from} until ${coverage.until}` : '';
    const missing = sites.filter(({ reason }) => reason !== undefined).map(({ name, reason }) => `; partial result: site ${name} is missing: ${reason}`);
    return `${first}${rows.length} rows, from ${coverage.segments} of ${coverage.segments_total} segments with ${coverage.rows} samples and other rows${time}${missing.join('')}${notes.map((note) => `; ${note}`).join('')}`;
  };

  // Each view asks once, and returns the sentence about its answer.
  const askTable = async (signal) => {
    const request = Object.fromEntries(['sql', 'from', 'until', 'sites', 'combine'].map((name) => [name, field(name)?.value ?? '']));
    const response = await fetch('/api/v1/profiles/sql', {
      method: 'POST', credentials: 'same-origin', signal, headers: { 'content-type': 'application/json' },
      body: JSON.stringify(request),
    });
    const found = await response.json();
    return response.ok ? showTable(found) : found.error;
  };
  const address = () => {
    const found = `/profiles/sql/view?${fields()}`;
    if (found.length > LONGEST) {
      throw new Error('the query is too long for this view; shorten it, or show a table');
    }
    return found;
  };
  const askChart = async (signal) => {
    const response = await fetch(address(), { credentials: 'same-origin', signal, headers: { accept: 'application/json' } });
    if (!response.ok) {
      return (await response.json()).error;
    }
    const { body } = new DOMParser().parseFromString(await response.text(), 'text/html');
    chart.replaceChildren(...body.children);
    return '';
  };
  const askGraph = (signal) => new Promise((resolve, reject) => {
    const frame = document.createElement('iframe');
    frame.className = 'profile';
    frame.id = 'graph';
    frame.title = 'The flame graph';
    frame.src = address();
    frame.addEventListener('load', () => {
      // The page of an error that the browser shows is of another origin.
      const page = frame.contentDocument;
      const problem = page?.getElementById('sql-problem') ?? null;
      if (page !== null && problem === null) {
        resolve('');
        return;
      }
      frame.remove();
      resolve(problem === null ? 'the flame graph was not sent; reload the page, and run the query again' : problem.textContent);
    });
    signal.addEventListener('abort', () => {
      // A frame that is removed ends its query.
      frame.remove();
      reject(signal.reason);
    });
    chart.replaceChildren(frame);
  });

  const run = async () => {
    running?.abort();
    const abort = new AbortController();
    running = abort;
    hasRun = true;
    cancel.hidden = false;
    clear();
    const begin = performance.now();
    const elapsed = () => ((performance.now() - begin) / 1000).toFixed(1);
    const timer = setInterval(() => {
      state.textContent = `running for ${elapsed()} s`;
    }, 100);
    let sentence;
    try {
      const ask = { '': askTable, graph: askGraph }[view.value] ?? askChart;
      sentence = (await ask(abort.signal)) || `answered in ${elapsed()} s`;
    } catch (error) {
      sentence = abort.signal.aborted ? 'canceled' : error.message;
    }
    clearInterval(timer);
    // A later run shows its own state.
    if (running === abort) {
      state.textContent = sentence;
      cancel.hidden = true;
      running = undefined;
    }
  };
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    history.replaceState(null, '', `?${fields()}`);
    run();
  });
  cancel.addEventListener('click', () => running?.abort());
  view.addEventListener('change', () => {
    history.replaceState(null, '', `?${fields()}`);
    if (hasRun) {
      run();
    }
  });
  // A drag over a chart selects a shorter time.
  document.addEventListener('times', ({ detail }) => {
    field('from').value = detail.from;
    field('until').value = detail.until;
    form.requestSubmit();
  });
  query.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.ctrlKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  // A saved view has the fields as they are now.
  const save = document.getElementById('save');
  save?.addEventListener('submit', () => {
    save.elements.namedItem('query').value = fields().toString();
  });
  for (const button of form.querySelectorAll('button[data-sql]')) {
    button.addEventListener('click', () => {
      query.value = button.dataset.sql;
      view.value = button.dataset.as;
      query.focus();
    });
  }
})();
