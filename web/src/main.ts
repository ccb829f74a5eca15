/** The code of a report: it reads the data of the page, and shows them. */

import { parse } from './data';
import { keepOf } from './keep';
import { mount } from './page';

const root = document.getElementById('root');
const data = document.getElementById('data');
if (root !== null && data !== null) {
  try {
    const wanted = new URLSearchParams(location.hash.slice(1));
    mount(root, parse(data.textContent ?? ''), {
      choices: { find: wanted.get('find') ?? '', keep: keepOf(wanted.get('keep')), view: wanted.get('view') ?? '' },
      chosen: ({ find, keep, view }) => {
        const pairs = Object.entries({ find, keep: keep === 'all' ? '' : keep, view }).filter(([, value]) => value !== '');
        const hash = new URLSearchParams(pairs).toString();
        history.replaceState(null, '', hash === '' ? location.pathname + location.search : `#${hash}`);
      },
    });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    root.textContent = `The profile cannot be shown. ${message}`;
    throw error;
  }
}
