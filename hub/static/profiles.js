// The explorer of profiles: fields complete from the store, and `brush.js` selects a time. Links
// have the choices of a person in the view.
'use strict';
(() => {
  const form = document.getElementById('filters');
  if (form === null) {
    return;
  }
  const field = (name) => form.elements.namedItem(name);
  const frame = document.getElementById('profile');
  const CHOICES = ['find', 'keep', 'view'];
  // The view keeps its choices in the fragment of its address.
  const readChoices = () => {
    let hash = '';
    try {
      hash = frame?.contentWindow?.location.hash ?? '';
    } catch {
      // An error page of the browser is of another origin.
      return;
    }
    const choices = new URLSearchParams(hash.slice(1));
    for (const name of CHOICES) {
      field(name).value = choices.get(name) ?? '';
    }
  };
  /** Returns the query of the page as it is now. */
  const query = () => {
    readChoices();
    const pairs = [...new FormData(form).entries()].filter(([, value]) => value !== '');
    return new URLSearchParams(pairs);
  };
  // Empty fields stay out of the address, so that links are short.
  form.addEventListener('formdata', (event) => {
    for (const [name, value] of [...event.formData.entries()]) {
      if (value === '') {
        event.formData.delete(name);
      }
    }
  });
  form.addEventListener('submit', readChoices);
  // A part belongs to its time.
  for (const name of ['from', 'until']) {
    field(name).addEventListener('input', () => {
      field('part_from').value = '';
      field('part_until').value = '';
    });
  }
  const pending = new Map();
  const complete = async (input) => {
    const column = input.dataset.column;
    const list = document.getElementById(`values-${column}`);
    const asked = new URLSearchParams({ column, prefix: input.value });
    for (const name of ['from', 'until', 'service']) {
      const value = field(name)?.value;
      if (value && name !== column) {
        asked.set(name, value);
      }
    }
    pending.get(column)?.abort();
    const abort = new AbortController();
    pending.set(column, abort);
    try {
      const response = await fetch(`/api/v1/profiles/values?${asked}`, { credentials: 'same-origin', signal: abort.signal });
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

  /** Sets or removes parameters of an address. */
  const changed = (address, values) => {
    const url = new URL(address, location.href);
    for (const [name, value] of Object.entries(values)) {
      if (value === '') {
        url.searchParams.delete(name);
      } else {
        url.searchParams.set(name, value);
      }
    }
    return url;
  };
  const part = document.getElementById('part');
  const views = frame === null ? [] : [frame, ...document.querySelectorAll('a.export')];
  const addressOf = (element) => (element === frame ? 'src' : 'href');
  /** Shows the profile of a part of the time, without asking for the chart again. */
  const showPart = (from, until) => {
    if (frame === null || part === null) {
      return;
    }
    readChoices();
    field('part_from').value = from;
    field('part_until').value = until;
    const times = from === '' ? { from: field('from').value, until: field('until').value } : { from, until };
    for (const element of views) {
      const url = changed(element.getAttribute(addressOf(element)), times);
      if (element === frame) {
        const choices = new URLSearchParams(CHOICES.map((name) => [name, field(name).value]).filter(([, value]) => value !== ''));
        url.hash = choices.toString();
      }
      element.setAttribute(addressOf(element), `${url.pathname}${url.search}${url.hash}`);
    }
    part.hidden = from === '';
    document.getElementById('part-from').textContent = from;
    document.getElementById('part-until').textContent = until;
    history.replaceState(null, '', `?${query()}`);
  };
  document.addEventListener('part', ({ detail }) => showPart(detail.from, detail.until));
  document.getElementById('part-all')?.addEventListener('click', () => showPart('', ''));

  // Links and saved views have the choices of the view.
  const save = document.getElementById('save');
  save?.addEventListener('submit', () => {
    save.elements.namedItem('query').value = query().toString();
  });
  for (const link of document.querySelectorAll('.chart .kinds a')) {
    link.addEventListener('click', () => {
      const now = query();
      const kept = Object.fromEntries([...CHOICES, 'part_from', 'part_until'].map((name) => [name, now.get(name) ?? '']));
      link.href = changed(link.href, kept).toString();
    });
  }
  const share = document.getElementById('share');
  share?.addEventListener('click', async (event) => {
    const now = query();
    const kept = Object.fromEntries([...CHOICES, 'part_from', 'part_until'].map((name) => [name, now.get(name) ?? '']));
    share.href = changed(share.href, kept).toString();
    const told = document.getElementById('shared');
    // Browsers have no clipboard for pages of plain HTTP. The link works there too.
    if (event.ctrlKey || event.metaKey || event.shiftKey || navigator.clipboard === undefined) {
      return;
    }
    event.preventDefault();
    try {
      await navigator.clipboard.writeText(share.href);
      told.textContent = 'copied';
    } catch {
      location.assign(share.href);
    }
  });

  // A drag over the chart selects a shorter time.
  document.addEventListener('times', ({ detail }) => {
    field('from').value = detail.from;
    field('until').value = detail.until;
    field('part_from').value = '';
    field('part_until').value = '';
    form.requestSubmit();
  });
})();
