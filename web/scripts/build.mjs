// Bundles the page of reports into the file that the binary contains.
// With --check, compares that file with the sources instead; with --tests, bundles the unit tests.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { fingerprint } from './fingerprint.mjs';

/** The generated file. */
const PAGE = '../profile/src/format/html/page.html';

async function bundled(options) {
  const { outputFiles } = await build({
    bundle: true, minify: true, write: false, legalComments: 'none', charset: 'utf8', logLevel: 'warning', target: 'es2022',
    ...options,
  });
  const text = outputFiles[0].text.trim();
  // The text is in an element. esbuild writes no end tag, and this makes sure.
  if (/<\/(script|style)|<!--/i.test(text)) {
    throw new Error('the bundle contains a tag that ends its element');
  }
  return text;
}

function hash(text) {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}

async function page() {
  const script = await bundled({ entryPoints: ['src/main.ts'], format: 'iife', platform: 'browser' });
  const style = await bundled({ entryPoints: ['src/style.css'] });
  const parts = {
    FINGERPRINT: fingerprint('.'), SCRIPT_HASH: hash(script), STYLE_HASH: hash(style), STYLE_TEXT: style, SCRIPT_TEXT: script,
  };
  const template = readFileSync('src/page.html', 'utf8');
  return template.replace(/FINGERPRINT|SCRIPT_HASH|STYLE_HASH|STYLE_TEXT|SCRIPT_TEXT/g, (name) => parts[name]);
}

if (process.argv.includes('--tests')) {
  rmSync('dist/test', { recursive: true, force: true });
  const entryPoints = readdirSync('test').filter((name) => name.endsWith('.test.ts')).map((name) => `test/${name}`);
  await build({
    bundle: true, platform: 'node', format: 'cjs', target: 'node20', sourcemap: 'inline', logLevel: 'warning', entryPoints, outdir: 'dist/test',
  });
} else if (process.argv.includes('--check')) {
  if (readFileSync(PAGE, 'utf8') !== (await page())) {
    console.error(`${PAGE.slice(3)} is outdated: run \`cargo xtask web\``);
    process.exit(1);
  }
} else {
  mkdirSync(PAGE.slice(0, PAGE.lastIndexOf('/')), { recursive: true });
  writeFileSync(PAGE, await page());
}
