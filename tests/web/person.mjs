/** A person who uses the hub's pages in a browser, and the checks of each page. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const { BACKTRAIL_HUB, BACKTRAIL_IMAGES, BACKTRAIL_VSCODE } = process.env;
export const AXE = readFileSync(path.join(BACKTRAIL_VSCODE, 'node_modules/axe-core/axe.min.js'), 'utf8');
export const DESKTOP = { width: 1400, height: 900 };
export const PHONE = { width: 390, height: 844 };
/** Elements that the keyboard must reach. */
const REACHABLE = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';

/** A signed-in person. Messages of the console and requests to others are problems. */
export class Person {
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
      // A note of Chromium about the focus of a part.
      if (message.text().startsWith('Autofocus processing was blocked')) return;
      // Chromium reports each answer that is an error.
      const isExpected = message.text().startsWith('Failed to load resource') && person.expected.has(message.location().url);
      if (!isExpected) {
        person.problems.push(`${person.page.url()}: ${message.type()}: ${message.text()}`);
      }
    });
    person.page.on('pageerror', (error) => person.problems.push(`${person.page.url()}: ${error}`));
    person.page.on('dialog', (dialog) => person.problems.push(`dialog: ${dialog.message()}`));
    person.page.on('request', (request) => {
      // The search of a profile runs in a worker of the page's own code.
      if (!request.url().replace(/^blob:/, '').startsWith(`${BACKTRAIL_HUB}/`)) {
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
    // Tab goes through frames too.
    const inside = await Promise.all(page.frames().slice(1).map((frame) => frame.locator(REACHABLE).count()));
    const most = inside.reduce((sum, one) => sum + one, count + 3);
    for (let presses = 0; presses < most; presses += 1) {
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
export async function image({ page }, name, viewport = { width: 1400, height: 900 }, colorScheme = 'light') {
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
