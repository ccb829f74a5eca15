// The page of a crash: copying, and the position that the buttons open.
'use strict';
(() => {
  const POSITION = /^t[0-9]{1,10}#-?[0-9]{1,20}$/;
  const said = document.getElementById('said');
  const say = (text) => {
    if (said !== null) {
      said.textContent = text;
    }
  };

  const copied = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.classList.add('done');
      say('Copied.');
      setTimeout(() => button.classList.remove('done'), 1500);
    } catch {
      // Without the permission, the text is shown so that a person can copy it.
      window.prompt('Copy this text:', button.dataset.copy);
    }
  };
  for (const button of document.querySelectorAll('[data-copy]')) {
    button.addEventListener('click', () => void copied(button));
  }

  // The lists show their ends, which are the newest entries.
  for (const id of ['last-lines', 'last-calls']) {
    const list = document.getElementById(id);
    if (list !== null) {
      list.scrollTop = list.scrollHeight;
    }
  }

  // One row of each list is in the order of the Tab key. Arrow keys choose another one.
  for (const list of document.querySelectorAll('.trace')) {
    const rows = [...list.querySelectorAll('a.row')];
    const choose = (row) => rows.forEach((other) => {
      other.tabIndex = other === row ? 0 : -1;
    });
    choose(rows.at(-1));
    list.addEventListener('focusin', ({ target }) => {
      if (rows.includes(target)) {
        choose(target);
      }
    });
    list.addEventListener('keydown', (event) => {
      const at = rows.indexOf(document.activeElement);
      const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -rows.length, End: rows.length };
      const step = steps[event.key];
      if (at >= 0 && step !== undefined && !event.altKey && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        rows[Math.min(Math.max(at + step, 0), rows.length - 1)].focus();
      }
    });
  }

  const editor = document.getElementById('open-editor');
  const command = document.getElementById('copy-command');
  const link = document.getElementById('copy-link');
  const at = document.getElementById('at');
  const name = document.getElementById('at-position');
  if (editor === null || command === null || link === null) {
    return;
  }
  const first = { editor: editor.href, command: command.dataset.copy, link: link.dataset.copy };

  // A link of the editor is `…?j=` and JSON as base64url (docs/vscode.md).
  const editorAt = (position) => {
    const [start, encoded] = first.editor.split('?j=');
    if (encoded === undefined) {
      return first.editor;
    }
    const bytes = Uint8Array.from(atob(encoded.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));
    const value = { ...JSON.parse(new TextDecoder().decode(bytes)), at: position };
    const text = String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value)));
    return `${start}?j=${btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`;
  };

  const follow = () => {
    let position = '';
    try {
      position = decodeURIComponent(location.hash.slice(1));
    } catch {
      // A malformed position is none.
    }
    const isKnown = POSITION.test(position);
    editor.href = isKnown ? editorAt(position) : first.editor;
    command.dataset.copy = isKnown ? `backtrail open '${first.link}#${position}'` : first.command;
    link.dataset.copy = isKnown ? `${first.link}#${position}` : first.link;
    for (const row of document.querySelectorAll('a.row, a.pos')) {
      const isHere = isKnown && row.getAttribute('href') === `#${position}`;
      row.classList.toggle('here', isHere);
      if (isHere) {
        row.setAttribute('aria-current', 'true');
      } else {
        row.removeAttribute('aria-current');
      }
    }
    if (at !== null && name !== null) {
      at.hidden = !isKnown;
      name.textContent = position;
    }
    if (isKnown) {
      say(`The buttons open the crash at ${position}.`);
    }
  };
  document.getElementById('at-crash')?.addEventListener('click', () => {
    history.replaceState(null, '', location.pathname);
    follow();
  });
  window.addEventListener('hashchange', follow);
  follow();
})();
