/** Opens the pages of `backtrail profile` in a browser, and uses every view by keys and pointer. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { browser, until } from '../vscode/workbench.mjs';

const { BACKTRAIL_IMAGES, BACKTRAIL_PAGES, BACKTRAIL_VSCODE } = process.env;
const AXE = readFileSync(path.join(BACKTRAIL_VSCODE, 'node_modules/axe-core/axe.min.js'), 'utf8');
const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };

/** Opens a page, and returns helpers. Messages of the console and requests are problems. */
async function open(window, name, viewport, reducedMotion = 'reduce') {
  const context = await window.newContext({ viewport, colorScheme: 'light', reducedMotion });
  const page = await context.newPage();
  const address = pathToFileURL(path.join(BACKTRAIL_PAGES, name)).href;
  const problems = [];
  page.on('console', (message) => {
    // Chromium says so when a dialog opens while a field has the focus.
    if (!message.text().startsWith('Autofocus processing was blocked')) {
      problems.push(`${message.type()}: ${message.text()}`);
    }
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('dialog', (dialog) => problems.push(`dialog: ${dialog.message()}`));
  page.on('request', (request) => {
    // The search runs in a worker of the page's own code.
    if (request.url() !== address && !request.url().startsWith('blob:')) {
      problems.push(`request: ${request.url()}`);
    }
  });
  await page.goto(address);
  await page.locator('h1').waitFor();
  const text = (selector) => page.locator(selector).first().textContent();
  return {
    page,
    canvas: page.locator('#panel-graph canvas'),
    said: () => text('[role=status]'),
    summary: () => text('.summary'),
    found: () => text('.found'),
    async tab(title) {
      await page.getByRole('tab', { name: title }).click();
    },
    /** Returns the cells of the table of functions, with names in the last column. */
    async table() {
      return page.locator('#panel-table tbody tr').evaluateAll((rows) =>
        rows.map((row) => [...row.querySelectorAll('td, button')].map((cell) => cell.textContent)));
    },
    /** Returns the color of a pixel of the flame graph. */
    async pixel(x, y) {
      // The canvas is drawn before the next frame.
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      return page.locator('#panel-graph canvas').evaluate((canvas, [x, y]) => {
        const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, -x, -y);
        return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3).join();
      }, [x, y]);
    },
    /** Fails on serious and critical findings. */
    async audit(where) {
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
      const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      const shown = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
      assert.deepEqual(shown, [], `${name}, ${where}`);
    },
    async close() {
      assert.deepEqual(problems, [], name);
      await context.close();
    },
  };
}

/** Sums, keys, search, range, events and themes on a wide screen. */
async function report(window) {
  const one = await open(window, 'report.html', DESKTOP);
  const { page, canvas, said, summary, found } = one;
  assert.equal(await summary(), 'cpu: 10.00 s (100.0%)');

  // The keyboard reaches the canvas, and the focus is visible.
  for (let presses = 0; presses < 20 && !(await canvas.evaluate((one) => one === document.activeElement)); presses += 1) {
    await page.keyboard.press('Tab');
  }
  assert.equal(await canvas.evaluate((one) => getComputedStyle(one).outlineStyle), 'solid');
  assert.match(await said(), /^all: 10\.00 s \(100\.0%\) of cpu$/);
  const press = async (key, expected) => {
    await page.keyboard.press(key);
    assert.match(await said(), expected, key);
  };
  await press('ArrowDown', /^main: total 10\.00 s \(100\.0%\); own 0 ns \(0\.0%\); depth 1; /);
  await press('ArrowDown', /^handle: total 8\.00 s \(80\.0%\); own 2\.00 s \(20\.0%\); depth 2; called by main; .*server\.c, server$/);
  await press('ArrowRight', /^wait: total 2\.00 s/);
  await press('ArrowLeft', /^handle: /);
  await press('Enter', /^zoomed; handle/);
  assert(await page.getByRole('button', { name: 'Zoom back' }).first().isEnabled());
  await press('ArrowDown', /^parse: total 6\.00 s/);
  await press('Enter', /^zoomed; parse/);
  await press('Escape', /^zoomed out; handle/);
  await press('Escape', /^zoomed out; all/);
  await press('Home', /^all/);

  // Search: matches have another color, and their share is named.
  const plain = await one.pixel(200, 30);
  await page.keyboard.press('/');
  await page.keyboard.type('^copy$|decode');
  await until('two functions', found, (text) => text === '2 functions match: 60.0% of cpu');
  const faded = await one.pixel(200, 30);
  assert.notEqual(faded, plain);
  await one.tab('Table');
  assert.deepEqual((await one.table()).map((row) => row.at(-1)), ['copy', 'decode']);
  await page.getByRole('searchbox').fill('(');
  assert.match(await found(), /Invalid regular expression/);
  assert.equal(await page.getByRole('searchbox').getAttribute('aria-invalid'), 'true');
  await page.getByRole('searchbox').press('Escape');
  assert.equal(await found(), '');

  // The table has the sums of `profile report`.
  assert.deepEqual(await one.table(), [
    ['4.00 s 40.0%', '4.00 s 40.0%', 'copy'],
    ['2.00 s 20.0%', '8.00 s 80.0%', 'handle'],
    ['2.00 s 20.0%', '2.00 s 20.0%', 'decode'],
    ['2.00 s 20.0%', '2.00 s 20.0%', 'wait'],
    ['0 ns 0.0%', '10.00 s 100.0%', 'main'],
    ['0 ns 0.0%', '6.00 s 60.0%', 'parse'],
  ]);
  await page.getByRole('button', { name: 'Function', exact: true }).press('Enter');
  assert.equal((await one.table())[0].at(-1), 'copy');
  assert.equal(await page.getByRole('columnheader', { name: 'Function' }).getAttribute('aria-sort'), 'ascending');
  await one.audit('table');

  // Callers and callees.
  await page.getByRole('button', { name: 'copy', exact: true }).click();
  assert.equal(await page.locator('#panel-sandwich h2').textContent(), 'copy');
  assert.equal(await page.locator('#panel-sandwich p').first().textContent(), 'total 4.00 s (40.0%) of cpu');
  const list = (name) => page.getByRole('region', { name }).locator('tr').allTextContents();
  assert.deepEqual(await list('Direct callers'), ['4.00 s (100.0%)parse']);
  assert.deepEqual(await list('Direct callees'), ['none']);
  await page.getByRole('button', { name: 'parse', exact: true }).last().click();
  assert.deepEqual(await list('Direct callees'), ['4.00 s (66.7%)copy', '2.00 s (33.3%)decode']);
  await one.audit('callers and callees');

  // The range of time, by keys and by the pointer.
  await page.getByRole('slider', { name: 'Begin' }).focus();
  await page.keyboard.press('End');
  await until('the last sample', summary, (text) => text === 'cpu: 1.00 s (100.0%), in the time range');
  await page.getByRole('button', { name: 'All times' }).click();
  await until('all samples', summary, (text) => text === 'cpu: 10.00 s (100.0%)');
  const box = await page.locator('.range canvas').boundingBox();
  await page.mouse.move(box.x + 0.5, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2, box.y + 20, { steps: 4 });
  await page.mouse.up();
  await until('half of the samples', summary, (text) => text === 'cpu: 5.00 s (100.0%), in the time range');
  await page.getByRole('button', { name: 'All times' }).click();

  await page.getByRole('combobox', { name: 'Event' }).selectOption('off-cpu');
  await until('the other event', summary, (text) => text === 'off-cpu: 3.00 s (100.0%)');
  await page.getByRole('combobox', { name: 'Event' }).selectOption('cpu');

  // The list of keys.
  await page.locator('h1').click();
  await page.keyboard.press('?');
  await page.getByRole('dialog').waitFor();
  await one.audit('keys');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });

  // A click zooms to a frame.
  await one.tab('Flame graph');
  await canvas.click({ position: { x: 100, y: 50 } });
  assert.match(await said(), /^zoomed; handle/);
  await page.getByRole('button', { name: 'Zoom back' }).first().click();
  await one.audit('flame graph');
  await image(page, 'profile-page');

  // Themes: the system's, and a choice.
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await theme(), 'light');
  const light = await one.pixel(200, 30);
  await page.emulateMedia({ colorScheme: 'dark' });
  await until('the dark theme', theme, (name) => name === 'dark');
  assert.notEqual(await one.pixel(200, 30), light);
  for (const title of ['Table', 'Tree', 'Callers and callees', 'Flame graph']) {
    await one.tab(title);
    await one.audit(`dark, ${title}`);
  }
  await page.getByRole('combobox', { name: 'Theme' }).selectOption('light');
  assert.equal(await theme(), 'light');
  await one.close();
}

/** A comparison names changes in words. */
async function diff(window) {
  const one = await open(window, 'diff.html', DESKTOP);
  const { page, canvas, said } = one;
  assert.equal(await one.summary(), 'samples: 100 (100.0%) before, 130 (100.0%) after: +30%');
  await canvas.focus();
  for (const expected of [/^main: total 100 .* before, 130 .* after: \+30%/, /^parse: .*\+140%/]) {
    await page.keyboard.press('ArrowDown');
    assert.match(await said(), expected);
  }
  await page.keyboard.press('ArrowRight');
  assert.match(await said(), /^idle: total 50 \(50\.0%\) before, 0 \(0\.0%\) after: removed/);
  await page.keyboard.press('ArrowRight');
  assert.match(await said(), /^log: .*: new/);
  await one.audit('flame graph');
  await image(page, 'profile-diff');
  await one.tab('Table');
  const changes = (await one.table()).map((row) => [row[0], row[1], row.at(-1)]);
  assert.deepEqual(changes, [['+70', '+140%', 'parse'], ['-50', 'removed', 'idle'], ['+10', 'new', 'log'], ['0', '+30%', 'main'], ['0', 'same', 'memcpy']]);
  await one.audit('table');
  await page.getByRole('checkbox').check();
  assert.equal(await one.summary(), 'samples: 100 (100.0%) before, 100 (100.0%) after: same');
  await one.close();
}

/** The parts of stacks above or below matches, and the choices in the address. */
async function keep(window) {
  const one = await open(window, 'report.html', DESKTOP);
  const { page, summary } = one;
  const names = async () => (await one.table()).map((row) => [row[1], row.at(-1)]);
  await one.tab('Table');
  await page.getByRole('searchbox').fill('^parse$');
  await page.getByRole('combobox', { name: 'Parts of stacks' }).selectOption('callers');
  await until('callers only', summary, (text) => text === 'cpu: 6.00 s (100.0%), with the callers of matches only');
  assert.deepEqual(await names(), [['6.00 s 100.0%', 'parse'], ['6.00 s 100.0%', 'handle'], ['6.00 s 100.0%', 'main']]);
  assert.equal(await one.found(), '1 function matches: 60.0% of cpu');
  await page.getByRole('combobox', { name: 'Parts of stacks' }).selectOption('callees');
  await until('callees only', summary, (text) => text.endsWith('with the callees of matches only'));
  assert.deepEqual(await names(), [['4.00 s 66.7%', 'copy'], ['2.00 s 33.3%', 'decode'], ['6.00 s 100.0%', 'parse']]);
  await one.audit('callees of matches');
  // The address has the choices, and a copy of it shows the same.
  assert.match(page.url(), /#find=%5Eparse%24&keep=callees&view=table$/);
  await page.reload();
  await until('the same view', summary, (text) => text.endsWith('with the callees of matches only'));
  assert.equal(await page.getByRole('tab', { name: 'Table' }).getAttribute('aria-selected'), 'true');
  await page.getByRole('searchbox').fill('(');
  await until('all stacks', summary, (text) => text === 'cpu: 10.00 s (100.0%)');
  assert.match(await one.found(), /Invalid regular expression/);
  await page.getByRole('searchbox').fill('');
  await page.getByRole('combobox', { name: 'Parts of stacks' }).selectOption('all');
  await one.close();
}

/** The call tree by keys and pointer, and its changes. */
async function tree(window) {
  const one = await open(window, 'diff.html', DESKTOP);
  const { page, said } = one;
  await one.tab('Tree');
  const row = (name) => page.locator('#panel-tree tbody tr').filter({ hasText: new RegExp(`${name}\\s*$`) }).first();
  const rows = () => page.locator('#panel-tree tbody tr').evaluateAll((all) =>
    all.map((one) => `${one.getAttribute('aria-level')} ${one.querySelector('td').textContent} ${one.querySelector('th').textContent.trim()}`));
  const lines = ['1 +30% ▾main', '2 +140% ▸parse', '2 removed idle', '2 new log'];
  // The path of the largest change is open.
  const opened = [lines[0], '2 +140% ▾parse', '3 same memcpy', ...lines.slice(2)];
  assert.deepEqual(await rows(), opened);
  await page.getByRole('tab', { name: 'Tree' }).focus();
  for (const key of ['Tab', 'Tab', 'Tab', 'ArrowDown']) {
    await page.keyboard.press(key);
  }
  assert.equal(await row('parse').getAttribute('aria-expanded'), 'true');
  await page.keyboard.press('ArrowRight');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /memcpy/);
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  assert.deepEqual(await rows(), lines);
  await one.audit('tree');
  await image(page, 'profile-tree');
  const filter = page.getByRole('combobox', { name: 'Changes' });
  for (const [value, expected] of [['new', [lines[0], lines[3]]], ['removed', [lines[0], lines[2]]], ['changed', [lines[0], '2 +140% parse', ...lines.slice(2)]], ['all', opened]]) {
    await filter.selectOption(value);
    assert.deepEqual(await rows(), expected, value);
  }
  assert.equal(await said(), '5 rows');
  await filter.selectOption('less');
  assert.equal(await page.locator('#panel-tree p').textContent(), 'No function has such a change.');
  await filter.selectOption('all');
  await page.locator('#panel-tree .toggle').first().click();
  assert.deepEqual(await rows(), ['1 +30% ▸main']);
  await page.locator('#panel-tree .toggle').first().click();
  await row('log').dblclick();
  assert.equal(await page.locator('#panel-sandwich h2').textContent(), 'log');
  await one.close();
}

/** A zoom moves to its end. */
async function zoom(window) {
  const one = await open(window, 'report.html', DESKTOP, 'no-preference');
  const { page, canvas, said } = one;
  // `parse` grows from 60 % of the width to 75 %.
  const before = await one.pixel(900, 70);
  const widths = page.evaluate(() => new Promise((done) => {
    const widths = [];
    const fill = CanvasRenderingContext2D.prototype.fillRect;
    CanvasRenderingContext2D.prototype.fillRect = function (left, top, width, height) {
      if (top === 60 && left === 0) {
        widths.push(width);
      }
      fill.call(this, left, top, width, height);
    };
    setTimeout(() => done(widths), 1500);
  }));
  await canvas.click({ position: { x: 100, y: 50 } });
  assert.match(await said(), /^zoomed; handle/);
  const drawn = await widths;
  assert(drawn.length > 2 && drawn.every((width, at) => at === 0 || width >= drawn[at - 1]), String(drawn));
  assert.notEqual(await one.pixel(900, 70), before);
  await one.close();
}

/** Names from profiles are texts. */
async function hostile(window) {
  const one = await open(window, 'hostile.html', DESKTOP);
  await one.tab('Table');
  assert.deepEqual((await one.table()).map((row) => row.at(-1)), ['<img src=x onerror=alert(2)>', '</script><script>alert(1)</script>']);
  assert.equal(await one.page.locator('script').count(), 2);
  assert.equal(await one.page.locator('img').count(), 0);
  await one.page.getByRole('button', { name: 'alert(1)' }).click();
  assert.equal(await one.page.locator('#panel-sandwich h2').textContent(), '</script><script>alert(1)</script>');
  // A script that gets into the page does not run.
  await one.close();
}

/** A phone: nothing is cut off, and a tap zooms. */
async function phone(window) {
  for (const name of ['report.html', 'diff.html']) {
    const one = await open(window, name, PHONE);
    for (const title of ['Flame graph', 'Table', 'Tree', 'Callers and callees']) {
      await one.tab(title);
      const width = await one.page.evaluate(() => document.documentElement.scrollWidth);
      assert(width <= PHONE.width, `${name}, ${title}: ${width} pixels wide`);
      await one.audit(`phone, ${title}`);
    }
    await one.tab('Flame graph');
    await one.canvas.click({ position: { x: 40, y: 30 } });
    assert.match(await one.said(), /^zoomed; main/);
    await one.close();
  }
}

/** 100 000 stacks. The time limits are those of a hung page. */
async function large(window) {
  const began = Date.now();
  const one = await open(window, 'large.html', DESKTOP);
  assert.equal(await one.summary(), 'samples: 100000 (100.0%)');
  const opened = Date.now();
  await one.canvas.focus();
  for (let step = 0; step < 20; step += 1) {
    await one.page.keyboard.press(['ArrowDown', 'ArrowRight', 'Enter', 'Escape'][step % 4]);
  }
  const walked = Date.now();
  await one.page.getByRole('searchbox').fill('c1$');
  await until('one function', one.found, (text) => text === '1 function matches: 0.0% of samples');
  console.log(`100 000 stacks: opened in ${opened - began} ms, 20 keys in ${walked - opened} ms, a search in ${Date.now() - walked} ms`);
  await one.close();
}

/** The slowest and the median call of a recording, for frames, functions and keys. */
async function calls(window) {
  const one = await open(window, 'calls.html', DESKTOP);
  const { page, canvas, said } = one;
  const command = (panel) => page.locator(`${panel} code.command`).textContent();
  // main has not returned: its call has no length.
  await page.getByRole('searchbox').fill('^main$');
  await one.tab('Table');
  await until('main', one.table, (rows) => rows.length === 1);
  await page.getByRole('button', { name: 'main', exact: true }).click();
  await page.locator('#panel-sandwich').getByRole('button', { name: 'Open the slowest call' }).first().click();
  assert.equal(await said(), 'main: 1 call is left out, since its beginning or end is not in the recording');
  assert.equal(await page.locator('#panel-sandwich code.command').count(), 0);
  // A function that main calls, and that has returned. The list is in the order of time.
  await page.getByRole('searchbox').fill('');
  const name = 'apply';
  await page.getByRole('region', { name: 'Direct callees' }).getByRole('button', { name, exact: true }).click();
  await until('the function', () => page.locator('#panel-sandwich h2').textContent(), (text) => text === name);
  for (const [title, which] of [['Open the slowest call', 'slowest'], ['Open a typical call', 'median']]) {
    await page.locator('#panel-sandwich').getByRole('button', { name: title }).first().click();
    assert((await said()).startsWith(`${name}: the ${which} of `), await said());
    assert.match(await command('#panel-sandwich'), /^backtrail debug \/.* --at 't\d+#\d+'$/);
    await one.audit(`function, ${which} call`);
  }
  // The frames of the flame graph, by keys.
  await one.tab('Flame graph');
  await canvas.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const frame = (await said()).split(':')[0];
  await page.keyboard.press('c');
  assert((await said()).startsWith(`${frame}: `), await said());
  await page.keyboard.press('t');
  assert((await said()).startsWith(`${frame}: `), await said());
  await one.audit('frame with its calls');
  await one.close();
}

/** A pattern that tries all ways to divide a name is stopped, and the page still works. */
async function slow(window) {
  const one = await open(window, 'slow.html', DESKTOP);
  const { page, found } = one;
  for (const pattern of ['^(a+)+$', '^(a|a)*$', '^(a|aa)+$']) {
    await page.getByRole('searchbox').fill(pattern);
    // At the same time the page works.
    await one.tab('Table');
    assert((await one.table()).length >= 1);
    await until('the time limit', found, (text) => text.startsWith('The search took longer than 3 seconds'));
    assert.equal(await page.getByRole('searchbox').getAttribute('aria-invalid'), 'true');
    await page.getByRole('searchbox').fill('^main$');
    await until('another search', found, (text) => text.startsWith('1 function matches'));
  }
  await one.close();
}

/** Saves a picture for the documentation, if requested. */
async function image(page, name) {
  if (BACKTRAIL_IMAGES !== undefined) {
    await page.mouse.move(1, 1);
    // Without the temporary folder of the test.
    await page.locator('h1').evaluate((title) => { title.textContent = title.textContent.replaceAll(/\/\S*\//g, ''); });
    await page.setViewportSize({ width: 1280, height: 560 });
    await page.waitForTimeout(300);
    await page.screenshot({ path: path.join(BACKTRAIL_IMAGES, `${name}.png`) });
    await page.setViewportSize(DESKTOP);
  }
}

const window = await browser();
try {
  for (const part of [report, keep, diff, tree, zoom, hostile, phone, large, calls, slow]) {
    await part(window);
    console.log(`${part.name}: as expected`);
  }
} finally {
  await window.close();
}
