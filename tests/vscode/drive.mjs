/** Uses every feature of the extension in one browser, and stops at the first error. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Files } from './files.mjs';
import { hub } from './hub.mjs';
import { opening } from './opening.mjs';
import { moving } from './moving.mjs';
import { looking } from './looking.mjs';
import { profile } from './profile.mjs';
import { views } from './views.mjs';
import { Workbench, browser } from './workbench.mjs';

const { BACKTRAIL_ADDRESS, BACKTRAIL_COLLECTED, BACKTRAIL_FILES, BACKTRAIL_SHOTS, BACKTRAIL_WORKSPACE } = process.env;
const source = readFileSync(path.join(BACKTRAIL_WORKSPACE, 'bakery.c'), 'utf8').split('\n');

/** Returns the line of the program that contains a text. */
function lineOf(text) {
  const index = source.findIndex((line) => line.includes(text));
  if (index < 0) {
    throw new Error(`no line of the program holds ${text}`);
  }
  return index + 1;
}

const packed = path.join(BACKTRAIL_WORKSPACE, 'crash.btz');
const [allowed, stranger] = [new Files({ '/crash/bakery.btz': packed }), new Files({ '/crash/bakery.btz': packed })];
const started = Date.now();
const seconds = () => ((Date.now() - started) / 1000).toFixed(1);
const window = await browser();
const context = await window.newContext({ viewport: { width: 1400, height: 860 } });
const bench = new Workbench(await context.newPage(), BACKTRAIL_SHOTS);
/** The messages of the page's console, for a failure. */
const said = [];
bench.page.on('console', (message) => said.push(`${message.type()}: ${message.text()}`));

const world = {
  bench,
  allowed,
  stranger,
  lineOf,
  packed,
  collected: BACKTRAIL_COLLECTED,
  workspace: BACKTRAIL_WORKSPACE,
  hub: process.env.BACKTRAIL_HUB_WALK && JSON.parse(process.env.BACKTRAIL_HUB_WALK),
  origins: {
    allowed: await allowed.listen(Number(BACKTRAIL_FILES.split(':')[1])),
    stranger: await stranger.listen(),
  },
};

// When the test is ended from outside, all its processes end.
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) {
    process.kill(-Number(process.env.BACKTRAIL_SERVER), 'SIGTERM');
    process.kill(-process.pid, 'SIGKILL');
  }
}, 1000).unref();

let current = 'opening the workspace';
try {
  await bench.open(BACKTRAIL_ADDRESS, BACKTRAIL_WORKSPACE);
  const steps = world.hub ? hub : [...opening, ...moving, ...looking, ...views, ...profile];
  const wanted = process.env.BACKTRAIL_STEPS?.split(',');
  for (const [number, { name, walk }] of steps.entries()) {
    if (wanted !== undefined && !wanted.includes(String(number + 1))) {
      continue;
    }
    current = `${number + 1} ${name}`;
    await walk(world);
    const picture = `${String(number + 1).padStart(2, '0')}-${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')}`;
    await bench.picture(picture);
    console.log(`[${seconds()} s] ${current}`);
  }
} catch (error) {
  process.exitCode = 1;
  console.error(`[${seconds()} s] ${current}: ${error.stack}`);
  await bench.picture('failure').catch(() => {});
  for (const [index, frame] of bench.page.frames().entries()) {
    const text = await frame.evaluate(() => document.body?.innerText ?? '').catch((gone) => String(gone));
    writeFileSync(path.join(BACKTRAIL_SHOTS, `failure-frame-${index}.txt`), `${frame.url()}\n\n${text}\n`);
  }
  writeFileSync(path.join(BACKTRAIL_SHOTS, 'failure-console.txt'), `${said.join('\n')}\n`);
} finally {
  await window.close();
  allowed.close();
  stranger.close();
}
