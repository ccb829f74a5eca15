// Opens files in speedscope as its web page does, and prints its contents as its save function
// writes them.
//
// node speedscope.mjs PACKAGES FILE...
//
// One line per file: {"saved": ..., "log": [...], "schema": errors}. The errors are those of its
// published schema, null for none or for another format.

import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';

const [packages, ...files] = process.argv.slice(2);
const require = createRequire(join(packages, 'package.json'));
const { JSDOM, VirtualConsole } = require('jsdom');
const Ajv = require('ajv');

const release = join(packages, 'node_modules/speedscope/dist/release');
const script = readdirSync(release).find(name => /^speedscope-.*\.js$/.test(name));
const page = readFileSync(join(release, script), 'utf8');
const schema = JSON.parse(readFileSync(join(release, 'file-format-schema.json'), 'utf8'));
const validate = new Ajv({ strict: false }).compile(schema);

const sleep = milliseconds => new Promise(done => setTimeout(done, milliseconds));

// Without a graphics card, only the drawing fails.
process.on('uncaughtException', error => {
  if (!/Setup failure/.test(error.message)) throw error;
});

async function open(file) {
  const log = [];
  const virtualConsole = new VirtualConsole();
  for (const level of ['log', 'warn', 'error', 'jsdomError'])
    virtualConsole.on(level, (...what) => log.push(`${level}: ${what.join(' ')}`));
  // With this address, the page waits for a file from a script.
  const { window } = new JSDOM('<!DOCTYPE html><body></body>', {
    url: 'http://localhost/#localProfilePath=none',
    runScripts: 'outside-only',
    pretendToBeVisual: true,
    virtualConsole,
  });
  let saved = null;
  window.TextDecoder = TextDecoder;
  window.matchMedia = () => ({ matches: false, addEventListener() {}, removeEventListener() {} });
  window.HTMLCanvasElement.prototype.getContext = () => null;
  window.HTMLAnchorElement.prototype.click = () => {};
  window.Blob = class { constructor(parts) { this.text = parts.join(''); } };
  window.URL.createObjectURL = blob => { saved = blob.text; return 'blob:saved'; };
  window.eval(page);
  for (let tries = 0; tries < 200 && !window.speedscope; tries++) await sleep(20);
  window.speedscope.loadFileFromBase64(basename(file), readFileSync(file).toString('base64'));
  const failed = () => log.some(line => line.startsWith('jsdomError'));
  for (let tries = 0; tries < 500 && !saved && !failed(); tries++) {
    await sleep(20);
    window.dispatchEvent(new window.KeyboardEvent('keydown', { key: 's', ctrlKey: true }));
  }
  window.close();
  return { saved: JSON.parse(saved), log: log.filter(line => !/WebGL/.test(line)) };
}

for (const file of files) {
  const opened = await open(file);
  let errors = null;
  if (file.endsWith('.speedscope.json') && !validate(JSON.parse(readFileSync(file, 'utf8'))))
    errors = validate.errors;
  const line = JSON.stringify({ ...opened, schema: errors }) + '\n';
  // A pipe accepts the text in parts.
  await new Promise(done => process.stdout.write(line, done));
}
process.exit(0);
