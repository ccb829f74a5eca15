// The form of a job: only the fields of the chosen kind of query are shown.
'use strict';
(() => {
  const kind = document.getElementById('kind');
  const form = document.getElementById('job');
  if (kind === null || form === null) {
    return;
  }
  const show = () => {
    for (const part of form.querySelectorAll('[data-kinds]')) {
      part.hidden = !part.dataset.kinds.split(' ').includes(kind.value);
    }
  };
  kind.addEventListener('change', show);
  show();
})();
