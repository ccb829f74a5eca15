// Bundles the extension and the code of its webviews; with --tests, the unit tests instead.
import { build, context } from 'esbuild';
import { readdirSync, rmSync } from 'node:fs';

const flags = new Set(process.argv.slice(2));
const common = {
  bundle: true,
  sourcemap: !flags.has('--minify'),
  minify: flags.has('--minify'),
  legalComments: 'none',
  logLevel: 'warning',
  loader: { '.css': 'text' },
};
const node = { ...common, platform: 'node', format: 'cjs', target: 'node20', external: ['vscode'] };

function tests() {
  rmSync('dist/test', { recursive: true, force: true });
  const entryPoints = readdirSync('test').filter((name) => name.endsWith('.test.ts')).map((name) => `test/${name}`);
  return [{ ...node, entryPoints, outdir: 'dist/test', minify: false, sourcemap: 'inline' }];
}

function product() {
  const webview = (name) => ({
    ...common,
    platform: 'browser',
    format: 'iife',
    target: 'es2022',
    entryPoints: [`src/views/${name}/webview/main.ts`],
    outfile: `dist/${name}.js`,
  });
  return [{ ...node, entryPoints: ['src/extension.ts'], outfile: 'dist/extension.js' }, webview('timeline'), webview('latency'), webview('profile')];
}

for (const options of flags.has('--tests') ? tests() : product()) {
  if (flags.has('--watch')) {
    await (await context(options)).watch();
  } else {
    await build(options);
  }
}
