// Light and dark: applies the stored choice before the first paint, and changes it by the button.
'use strict';
(() => {
  const SETTING = 'backtrail-theme';
  const CHOICES = ['system', 'light', 'dark'];
  const stored = () => {
    try {
      const value = localStorage.getItem(SETTING);
      return CHOICES.includes(value) ? value : 'system';
    } catch {
      return 'system';
    }
  };
  const apply = (choice) => {
    if (choice === 'system') {
      delete document.documentElement.dataset.theme;
    } else {
      document.documentElement.dataset.theme = choice;
    }
  };
  let choice = stored();
  apply(choice);
  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    if (button === null) {
      return;
    }
    const name = () => {
      button.title = `Theme: ${choice}`;
    };
    name();
    button.addEventListener('click', () => {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      apply(choice);
      name();
      try {
        localStorage.setItem(SETTING, choice);
      } catch {
        // The choice holds for this page.
      }
    });
  });
})();
