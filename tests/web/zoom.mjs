/** Measures the pictures a second of a zooming flame graph with 100 000 frames, in Chromium. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { browser } from '../vscode/workbench.mjs';

const PAGE = new URL('../../profile/src/format/html/page.html', import.meta.url);
const FRAMES = 100_000;
const FUNCTIONS = 5000;
/** The length of a measurement in seconds. */
const SECONDS = Number(process.env.BACKTRAIL_SECONDS ?? 10);

/** Returns numbers from 0 to 1, the same ones each time. */
function numbers() {
  let seed = 1;
  return () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed / 2_147_483_648;
  };
}

/** A tree that grows at random frames: deep, with narrow and wide parts. */
function grown() {
  const random = numbers();
  const [caller, frame, depth, known] = [[0], [0], [0, 1], new Set()];
  while (caller.length < FRAMES) {
    const at = 1 + Math.floor(random() * caller.length);
    const fn = 1 + Math.floor(random() * (FUNCTIONS - 1));
    const key = at * FUNCTIONS + fn;
    if (depth[at] < 60 && !known.has(key)) {
      known.add(key);
      caller.push(at);
      frame.push(fn);
      depth.push(depth[at] + 1);
    }
  }
  return { caller, frame };
}

/** Four levels, of which the last has almost all frames. */
function wide() {
  const [caller, frame] = [[0], [0]];
  const add = (at, fn) => {
    caller.push(at);
    frame.push(fn);
    return caller.length;
  };
  const middle = Array.from({ length: 10 }, (_, a) => add(1, 1 + a)).flatMap((above, a) =>
    Array.from({ length: 100 }, (_, b) => add(above, 20 + ((a * 100 + b) % 1000))));
  for (let at = 0; caller.length < FRAMES; at += 1) {
    add(middle[at % middle.length], 1100 + (Math.floor(at / middle.length) * 37 + at) % 3800);
  }
  return { caller, frame };
}

/** Returns the page of a tree in which each frame has a weight of its own. */
function page({ caller, frame }) {
  const random = numbers();
  const all = Array.from({ length: caller.length }, (_, at) => at + 1);
  const strings = ['', ...Array.from({ length: FUNCTIONS }, (_, at) => `ns::Type${at % 50}::method_${at}(int, char const*)`)];
  const modules = strings.length;
  strings.push(...Array.from({ length: 40 }, (_, at) => `lib${at}.so`));
  const functions = Array.from({ length: FUNCTIONS }, (_, at) => at);
  const data = {
    format: 'backtrail-profile-view/1', names: ['generated'], events: [{ name: 'cpu', unit: 'nanoseconds' }], event: 0, normalize: false, strings,
    functions: { name: functions.map((fn) => fn + 1), file: functions.map(() => 0), module: functions.map((fn) => modules + (fn % 40)) },
    frames: { function: functions, line: functions.map(() => 0) }, stacks: { caller, frame },
    samples: [{ event: all.map(() => 0), stack: all, weight: all.map(() => 1 + Math.floor(random() * 1000)), interval: [] }],
    time: null, calls: null, notes: [],
  };
  return readFileSync(PAGE, 'utf8').replace('{{title}}', 'generated').replace('{{data}}', () => JSON.stringify(data));
}

/** Measures the time of all that runs before a picture. */
function watch() {
  globalThis.script = [];
  const request = requestAnimationFrame;
  let [picture, sum] = [0, 0];
  globalThis.requestAnimationFrame = (callback) => request((time) => {
    const begin = performance.now();
    callback(time);
    if (time !== picture) {
      globalThis.script.push(sum);
      [picture, sum] = [time, 0];
    }
    sum += performance.now() - begin;
  });
}

/** Zooms by keys without a pause. Returns the times between pictures, and the frames of each. */
async function measure(seconds) {
  const canvas = document.querySelector('#panel-graph canvas');
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  const picture = () => new Promise((done) => requestAnimationFrame(done));
  let rectangles = 0;
  const fill = CanvasRenderingContext2D.prototype.fillRect;
  CanvasRenderingContext2D.prototype.fillRect = function (...box) {
    rectangles += 1;
    fill.apply(this, box);
  };
  canvas.focus();
  await picture();
  const begin = await picture();
  const times = [];
  let [last, next, zooms] = [begin, begin, 0];
  while (last < begin + seconds * 1000) {
    if (last >= next) {
      // Four zooms in along the largest frames, and four out. A zoom takes 180 ms.
      if (zooms % 8 < 4) {
        press('ArrowDown');
        press('ArrowDown');
        press('Enter');
      } else {
        press('Escape');
      }
      zooms += 1;
      next = last + 180;
    }
    const now = await picture();
    times.push(now - last);
    last = now;
  }
  return { times, zooms, drawn: rectangles / times.length, elapsed: last - begin, script: globalThis.script.slice(-times.length) };
}

const folder = mkdtempSync(path.join(tmpdir(), 'zoom-'));
const window = await browser();
try {
  console.log('| tree | frames | zooms | drawn in a picture | pictures a second | median ms | 99 % ms | longest ms | script ms, median | 99 % |');
  console.log('|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|');
  for (const [name, tree] of [['grown at random', grown()], ['four levels', wide()]]) {
    const file = path.join(folder, 'page.html');
    writeFileSync(file, page(tree));
    const context = await window.newContext({ viewport: { width: 1400, height: 900 }, reducedMotion: 'no-preference' });
    const tab = await context.newPage();
    await tab.addInitScript(watch);
    await tab.goto(pathToFileURL(file).href);
    await tab.locator('#panel-graph canvas').waitFor();
    const { times, zooms, drawn, elapsed, script } = await tab.evaluate(measure, SECONDS);
    const at = (share, of = times) => of.toSorted((one, other) => one - other)[Math.min(of.length - 1, Math.floor(share * of.length))].toFixed(1);
    const rate = ((times.length / elapsed) * 1000).toFixed(1);
    console.log(`| ${name} | ${tree.caller.length} | ${zooms} | ${Math.round(drawn)} | ${rate} | ${at(0.5)} | ${at(0.99)} | ${at(1)} | ${at(0.5, script)} | ${at(0.99, script)} |`);
    await context.close();
  }
} finally {
  await window.close();
  rmSync(folder, { recursive: true });
}
