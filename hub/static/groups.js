// Lists: a changed filter is applied at once, and one menu is open at a time.
'use strict';
(() => {
  const filters = document.getElementById('filters');
  filters?.addEventListener('change', () => filters.requestSubmit());
  const menus = [...document.querySelectorAll('details.menu')];
  for (const menu of menus) {
    menu.addEventListener('toggle', () => {
      if (menu.open) {
        menus.filter((other) => other !== menu).forEach((other) => other.removeAttribute('open'));
        menu.querySelector('input:not([type=hidden]), select')?.focus();
      }
    });
  }
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      menus.forEach((menu) => menu.removeAttribute('open'));
    } else if (event.key === '/' && !/^(input|textarea|select)$/i.test(event.target.tagName)) {
      document.querySelector('input[name=q]')?.focus();
      event.preventDefault();
    }
  });
  document.addEventListener('click', (event) => {
    menus.filter((menu) => !menu.contains(event.target)).forEach((menu) => menu.removeAttribute('open'));
  });
})();
