/** The list of keys. */

import { element } from '../dom';
import { KEYS } from '../keyboard';

/** Returns the dialog, which is closed. */
export function keysDialog(): HTMLDialogElement {
  const rows = KEYS.flatMap(([key, meaning]) => [element('dt', {}, element('kbd', {}, key)), element('dd', {}, meaning)]);
  const close = element('button', { type: 'button', autofocus: true, onclick: () => dialog.close() }, 'Close');
  const note = element('p', { class: 'dim' }, 'A search is a regular expression on names, files and modules. Without capitals, it matches any case.');
  const dialog: HTMLDialogElement = element('dialog', { 'aria-labelledby': 'keys-title' },
    element('h2', { id: 'keys-title' }, 'Keys'), element('dl', {}, ...rows), note, close);
  return dialog;
}
