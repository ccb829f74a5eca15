/** Opens the hub's pages in a browser: their content, keys, themes and sizes. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { browser, until } from '../vscode/workbench.mjs';

const { BACKTRAIL_HUB, BACKTRAIL_IMAGES, BACKTRAIL_PAGES, BACKTRAIL_STOPPED, BACKTRAIL_TOKENS, BACKTRAIL_VSCODE } = process.env;
const AXE = readFileSync(path.join(BACKTRAIL_VSCODE, 'node_modules/axe-core/axe.min.js'), 'utf8');
const PAGES = JSON.parse(readFileSync(BACKTRAIL_PAGES, 'utf8'));
const [ADMIN, READER] = BACKTRAIL_TOKENS.split(',');
const DESKTOP = { width: 1400, height: 900 };
const PHONE = { width: 390, height: 844 };
/** Elements that the keyboard must reach. */
const REACHABLE = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';

/** A signed-in person. Messages of the console and requests to others are problems. */
class Person {
  problems = [];
  /** The answers that are expected to be errors. */
  expected = new Set();

  static async enter(window, token) {
    const person = new Person();
    const context = await window.newContext({ viewport: DESKTOP, colorScheme: 'light', reducedMotion: 'reduce', permissions: ['clipboard-read', 'clipboard-write'] });
    person.page = await context.newPage();
    person.page.setDefaultTimeout(30_000);
    await person.page.addInitScript(() => {
      globalThis.reached = new Set();
      document.addEventListener('focusin', ({ target }) => globalThis.reached.add(target));
      document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) =>
        console.error(`policy: ${violatedDirective} ${blockedURI}`));
    });
    person.page.on('console', (message) => {
      // Chromium reports each answer that is an error.
      const isExpected = message.text().startsWith('Failed to load resource') && person.expected.has(message.location().url);
      if (!isExpected) {
        person.problems.push(`${person.page.url()}: ${message.type()}: ${message.text()}`);
      }
    });
    person.page.on('pageerror', (error) => person.problems.push(`${person.page.url()}: ${error}`));
    person.page.on('dialog', (dialog) => person.problems.push(`dialog: ${dialog.message()}`));
    person.page.on('request', (request) => {
      if (!request.url().startsWith(`${BACKTRAIL_HUB}/`)) {
        person.problems.push(`request: ${request.url()}`);
      }
    });
    if (token !== undefined) {
      await person.open('sign-in', '/sign-in?then=%2F', 'Sign in');
      await person.page.getByLabel('Token').fill(token);
      await person.page.keyboard.press('Enter');
      await person.page.getByRole('heading', { level: 1, name: 'Crashes' }).waitFor();
    }
    return person;
  }

  /** Opens a page, and checks its title. */
  async open(name, address, title, status = 200) {
    const url = `${BACKTRAIL_HUB}${address}`;
    if (status !== 200) {
      this.expected.add(url);
    }
    const answer = await this.page.goto(url);
    assert.equal(answer.status(), status, name);
    assert.match(answer.headers()['content-security-policy'], /^default-src 'none'/, name);
    await this.page.getByRole('heading', { level: 1 }).waitFor();
    assert.match(await this.text('h1'), new RegExp(title), name);
  }

  text(selector) {
    return this.page.locator(selector).first().textContent();
  }

  async see(name, ...texts) {
    const all = await this.page.locator('main').innerText();
    for (const text of texts) {
      assert(text instanceof RegExp ? text.test(all) : all.includes(text), `${name}: no ${text} in\n${all}`);
    }
  }

  /** Fails on serious and critical findings of all rules, or of some. */
  async audit(where, rules) {
    const options = { resultTypes: ['violations'], ...(rules === undefined ? {} : { runOnly: rules }) };
    const { violations } = await this.page.evaluate((options) => globalThis.axe.run(document, options), options);
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    const shown = serious.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 5).map(({ html }) => html).join('\n')}`);
    assert.deepEqual(shown, [], where);
  }

  /** Checks the open page in both themes and sizes, and that keys reach all of it. */
  async check(name) {
    const { page } = this;
    await page.evaluate(AXE);
    await this.audit(`${name}, light`);
    await this.keys(name);
    await page.emulateMedia({ colorScheme: 'dark' });
    await this.audit(`${name}, dark`, ['color-contrast']);
    await page.setViewportSize(PHONE);
    const wide = await page.evaluate(() => {
      const width = document.documentElement.clientWidth;
      const isCut = (element) => element.closest('.scroll, #stage, .spoken, .skip, thead') === null && element.getBoundingClientRect().right > width + 1;
      const found = [...document.querySelectorAll('body *')].filter(isCut);
      return document.documentElement.scrollWidth > width ? found.slice(0, 5).map(({ outerHTML }) => outerHTML.slice(0, 200)) : [];
    });
    assert.deepEqual(wide, [], `${name} is wider than a phone`);
    await this.audit(`${name}, phone, dark`, ['color-contrast', 'target-size', 'scrollable-region-focusable']);
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize(DESKTOP);
  }

  /** Presses Tab until the keyboard has been everywhere. */
  async keys(name) {
    const { page } = this;
    const count = await page.evaluate((wanted) => {
      const isThere = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.disabled && element.tabIndex >= 0;
      globalThis.wanted = [...document.querySelectorAll(wanted)].filter(isThere);
      globalThis.reached.clear();
      document.activeElement?.blur();
      return globalThis.wanted.length;
    }, REACHABLE);
    for (let presses = 0; presses < count + 3; presses += 1) {
      await page.keyboard.press('Tab');
    }
    const missed = await page.evaluate(() =>
      globalThis.wanted.filter((element) => !globalThis.reached.has(element)).map(({ outerHTML }) => outerHTML.slice(0, 200)));
    assert.deepEqual(missed, [], `${name}: the keyboard does not reach`);
  }

  async close() {
    assert.deepEqual(this.problems, []);
    await this.page.context().close();
  }
}

/** Saves a picture for the documentation, if requested. */
async function image({ page }, name, viewport = { width: 1400, height: 900 }, colorScheme = 'light') {
  if (BACKTRAIL_IMAGES === undefined) {
    return;
  }
  await page.emulateMedia({ colorScheme });
  await page.setViewportSize(viewport);
  // Without the folders of this machine.
  await page.evaluate(() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      walker.currentNode.data = walker.currentNode.data.replaceAll(/\/(?!usr\/|lib\/|srv\/|rustc\/)[\w.-]+\/\S*\//g, '/srv/src/');
    }
    globalThis.scrollTo(0, 0);
  });
  await page.mouse.move(1, 1);
  await page.waitForTimeout(400);
  await page.screenshot({ path: path.join(BACKTRAIL_IMAGES, `${name}.png`) });
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(DESKTOP);
}

/** The list: filters, search, and nothing found. */
async function list(admin) {
  const { page } = admin;
  await admin.open('list', '/', 'Crashes');
  await admin.see('list', 'post', 'SIGSEGV null write', 'lease-manager', 'checkout', /of 40/);
  assert(await page.locator('svg.spark').count() >= 8, 'sparklines');
  await image(admin, 'hub-list');
  await image(admin, 'hub-list-dark', undefined, 'dark');
  await image(admin, 'hub-list-phone', PHONE);
  await admin.check('list');
  const groups = () => page.locator('table.groups tbody tr').count();
  const all = await groups();
  // A chosen filter is applied at once, without a click.
  await page.getByRole('combobox', { name: 'Service' }).selectOption('lease-manager');
  await page.waitForURL(/service=lease-manager/);
  assert.equal(await groups(), 1);
  await admin.check('filtered list');
  await page.keyboard.press('/');
  await page.keyboard.type('lease');
  await page.keyboard.press('Enter');
  await page.waitForURL(/q=lease/);
  await admin.see('search', '“lease”');
  await admin.check('search');
  await admin.open('empty list', '/?q=nothing-has-this-name', 'Crashes');
  await admin.see('empty list', 'No group matches');
  await admin.check('empty list');
  await page.getByRole('link', { name: 'Show all groups' }).click();
  await page.waitForURL(`${BACKTRAIL_HUB}/`);
  assert.equal(await groups(), all);
}

/** The page of a group. */
async function group(admin) {
  const { page } = admin;
  await admin.open('group', PAGES['ledger-group'], '');
  await admin.see('group', 'Over-represented values', 'Why these crashes are one group', '2026.11.4', 'first seen', 'Latest crashes', /way into this crash/);
  await image(admin, 'hub-group', { width: 1400, height: 1250 });
  await image(admin, 'hub-group-dark', { width: 1400, height: 1250 }, 'dark');
  await image(admin, 'hub-group-phone', PHONE);
  await admin.check('group');
  // Menus open by keys, and Escape closes them.
  const resolve = page.locator('summary', { hasText: 'Resolve' });
  await resolve.focus();
  await page.keyboard.press('Enter');
  await page.getByLabel('Fixed in the build').waitFor();
  await admin.audit('open menu');
  await page.keyboard.press('Escape');
  await page.getByLabel('Fixed in the build').waitFor({ state: 'hidden' });
  await page.getByLabel('New comment').fill('Seen after the deploy.');
  await page.getByRole('button', { name: 'Comment' }).click();
  await page.locator('.comment').waitFor();
  await admin.see('comment', 'Seen after the deploy.');
}

/** The page of a crash with a bundle. */
async function crash(admin) {
  const { page } = admin;
  await admin.open('crash', PAGES.ledger, '');
  await admin.see('crash', 'Cause', 'Last lines before the crash', 'Last calls', 'Stack', 'Timeline', 'Modules', 'debug information', 'How the snapshot was taken');
  // The source is there if the bundle brought it. The faulting line is marked then.
  if (await page.locator('.source').count() > 0) {
    assert.equal(await page.locator('.source .hit').count(), 1);
  } else {
    await admin.see('crash without source', 'The text of the file is not in the bundle');
  }
  assert(await page.locator('#last-lines .row').count() > 10, 'last lines');
  assert(await page.locator('#last-calls .row').count() > 3, 'last calls');
  assert(await page.locator('.values dt').count() > 0, 'values');
  await until('the timeline', () => page.locator('#notice').isHidden());
  await image(admin, 'hub-crash', { width: 1400, height: 1500 });
  await image(admin, 'hub-crash-dark', { width: 1400, height: 1500 }, 'dark');
  await image(admin, 'hub-crash-phone', PHONE);
  await admin.check('crash');

  // A line selects its position: the address and the buttons have it.
  const line = page.locator('#last-lines .row').nth(-3);
  await line.click();
  const position = new URL(page.url()).hash.slice(1);
  assert.match(position, /^t\d+#-?\d+$/);
  const link = await page.locator('#open-editor').getAttribute('href');
  const payload = JSON.parse(Buffer.from(new URL(link).searchParams.get('j'), 'base64url'));
  assert.deepEqual(payload, { v: 1, origin: BACKTRAIL_HUB, crash: PAGES.ledger.slice(3), at: position });
  await page.getByRole('button', { name: 'Copy backtrail open' }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(copied, `backtrail open '${BACKTRAIL_HUB}${PAGES.ledger}#${position}'`);
  await page.getByRole('button', { name: 'back to the crash' }).click();
  assert.equal(new URL(page.url()).hash, '');

  // Arrow keys choose a line, and Enter selects it.
  await page.locator('#last-lines .row[tabindex="0"]').focus();
  await page.keyboard.press('End');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  const chosen = await page.locator('#last-lines .row').nth(-2).getAttribute('href');
  assert.equal(new URL(page.url()).hash, chosen);

  // The timeline by keys: a call is chosen, and Enter selects its position.
  await page.locator('#canvas').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  assert.notEqual(await admin.text('#spoken'), '');
  await page.keyboard.press('Enter');
  await until('a position', () => new URL(page.url()).hash, (hash) => /^#t\d+%?#/.test(hash));

  const saved = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Download' }).click();
  assert.match((await saved).suggestedFilename(), /\.btz$/);
  await page.goto('about:blank');
  await admin.open('crash at a position', `${PAGES.ledger}#${position}`, '');
  await page.locator('.row.here').first().waitFor();

  for (const name of ['lease', 'thread_crash', 'inlined']) {
    await admin.open(name, PAGES[name], '');
    await page.evaluate(AXE);
    await admin.audit(name);
  }
}

/** Crashes whose bundle is not here. */
async function states(admin) {
  for (const [name, ...texts] of [
    ['stacks', 'as the host reported it'],
    ['wanted', 'Bundle awaited'],
    ['uploading', 'Uploading', /\d+ (B|kB|KiB|MB|MiB) of/],
    ['refused', 'Bundle refused'],
    ['checking', 'Being checked'],
  ]) {
    await admin.open(name, PAGES[name], '');
    await admin.see(name, ...texts, '+0x1234');
    await admin.check(name);
    assert.equal(await admin.page.locator('main script, main img').count(), 0, name);
  }
  // The page shows the analysis by itself when the child process goes on.
  process.kill(Number(BACKTRAIL_STOPPED), 'SIGCONT');
  await admin.page.getByRole('heading', { name: 'Last lines before the crash' }).waitFor();
}

/** Pages of administrators, and errors. */
async function others(admin, window) {
  await admin.open('settings', '/settings', 'Settings');
  await admin.see('settings', 'Tokens');
  await admin.check('settings');
  await admin.open('audit', '/audit', 'Audit');
  await admin.see('audit', 'open', 'sign in');
  await admin.check('audit');
  await admin.open('404', '/c/00000000000000000999', 'Not found', 404);
  await admin.check('404');
  const reader = await Person.enter(window, READER);
  await reader.open('403', '/settings', 'Not permitted', 403);
  await reader.check('403');
  await reader.open('group of a reader', PAGES['ledger-group'], '');
  assert.equal(await reader.page.locator('summary', { hasText: 'Resolve' }).count(), 0);
  await reader.page.getByRole('button', { name: 'Sign out' }).click();
  await reader.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await reader.check('sign-in');
  reader.expected.add(`${BACKTRAIL_HUB}/sign-in`);
  await reader.page.getByLabel('Token').fill('bthub_wrong');
  await reader.page.keyboard.press('Enter');
  await reader.page.getByRole('alert').waitFor();
  await reader.check('refused sign-in');
  await reader.close();
}

const window = await browser();
try {
  const admin = await Person.enter(window, ADMIN);
  // The stopped child process is killed at its time limit, so its page comes first.
  for (const part of [states, list, group, crash, others]) {
    const began = Date.now();
    await part(admin, window);
    console.log(`${part.name}: as expected, ${Date.now() - began} ms`);
  }
  await admin.close();
} finally {
  await window.close();
}
