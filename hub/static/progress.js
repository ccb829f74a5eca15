// The state of a bundle: asks the hub until it changes, then loads the page again.
'use strict';
(() => {
  const panel = document.getElementById('progress');
  const source = panel?.dataset.source;
  if (source === undefined) {
    return;
  }
  const bar = document.getElementById('progress-bar');
  const text = document.getElementById('progress-text');
  let delay = 1000;
  const ask = async () => {
    let again;
    try {
      const response = await fetch(source, { credentials: 'same-origin', cache: 'no-store' });
      if (response.ok) {
        const state = await response.json();
        if (state.state !== panel.dataset.state) {
          location.reload();
          return;
        }
        if (text !== null && text.textContent !== state.text) {
          text.textContent = state.text;
          delay = 1000;
        }
        if (typeof state.again === 'number') {
          again = Math.max(state.again, 100);
        }
        if (bar !== null && typeof state.done === 'number') {
          bar.value = state.done;
        }
      }
    } catch {
      // The hub may be away for a moment.
    }
    // A state that does not change is asked for less and less often, unless the hub knows better.
    delay = Math.min(delay * 1.3, 15000);
    setTimeout(ask, again ?? delay);
  };
  setTimeout(ask, delay);
})();
