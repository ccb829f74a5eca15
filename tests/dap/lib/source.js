// The sources of recorded programs. Tests find lines by their text instead of their number.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const folder = path.join(__dirname, '../../fixtures/programs');

/** A source, as DWARF names it. */
const file = (name) => path.join(folder, name);

/** Returns the number of the only line with this text. */
function line(name, text) {
  const lines = fs.readFileSync(file(name), 'utf8').split('\n');
  const found = lines.flatMap((content, at) => (content.includes(text) ? [at + 1] : []));
  if (found.length !== 1) {
    throw new Error(`${name} has ${found.length} lines with ${text}`);
  }
  return found[0];
}

module.exports = { file, line };
