/** The code of a report: it reads the data of the page, and shows them. */

import { parse } from './data';
import { mount } from './page';

const root = document.getElementById('root');
const data = document.getElementById('data');
if (root !== null && data !== null) {
  try {
    mount(root, parse(data.textContent ?? ''));
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    root.textContent = `The profile cannot be shown. ${message}`;
    throw error;
  }
}
