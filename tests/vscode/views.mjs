/**
 * The extension's own views: call history, timeline, latency and bookmarks; and a canceled
 * download.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { follow, link } from './links.mjs';
import { until } from './workbench.mjs';

/** Runs `act` in a window of 900 pixels. */
async function narrowed(bench, act) {
  const size = bench.page.viewportSize();
  await bench.page.setViewportSize({ width: 900, height: size.height });
  await act();
  await bench.page.setViewportSize(size);
}

export const views = [
  {
    name: 'the call history unfolds and leads to calls',
    async walk({ bench, lineOf }) {
      const calls = await bench.section('Call History');
      const call = (label) => calls.locator(`.monaco-list-row[aria-label^="${label}"]`);
      // The view shows the call that contains the position.
      await calls.locator('.monaco-list-row[aria-label*="the position is in it"]').waitFor();
      await until('the calls of work', () => call('serve, ').count(), (count) => count >= 6);
      // The fourth order took the last loaf.
      const fourth = call('serve, ').nth(3);
      await until('the calls of the fourth order', async () => {
        if ((await fourth.getAttribute('aria-expanded')) === 'false') {
          await fourth.locator('.monaco-tl-twistie').click({ timeout: 3000 }).catch(() => {});
        }
        return call('strike, ').first().waitFor({ timeout: 3000 }).then(() => true, () => false);
      });
      await bench.moves(() => call('strike, ').first().click());
      await bench.at(lineOf('static void strike') + 1);
      if (bench.wantsImages) {
        // With the timeline, after it is drawn.
        await bench.command('Backtrail: Focus on Timeline View');
        const frame = await bench.frameWith('#canvas');
        await frame.locator('#notice').waitFor({ state: 'hidden' });
        await bench.command('Backtrail: Timeline: Show Where I Am');
        await bench.image('history');
      }
      await bench.crash(lineOf('int total = bread->price'));
    },
  },
  {
    name: 'the timeline shows threads and calls',
    async walk({ bench, lineOf }) {
      await bench.command('Backtrail: Focus on Timeline View');
      const frame = await bench.frameWith('#canvas');
      await frame.locator('#notice').waitFor({ state: 'hidden' });
      const spoken = (what, pattern) => until(what, () => frame.locator('#spoken').innerText(), (text) => pattern.test(text));
      await frame.locator('#canvas').focus();
      await spoken('its threads', /Timeline with 3 threads, now in thread \d+ baker-west/);
      // By keys: select a call, then its caller, and go there.
      await frame.locator('#canvas').press('ArrowLeft');
      await spoken('a call', /thread \d+ baker-west.*Enter goes there/s);
      await bench.moves(() => frame.locator('#canvas').press('Enter'));
      const whole = await windowLength(frame, '-');
      const half = await windowLength(frame, '+');
      assert.notEqual(half, whole);
      // By the pointer: select a bar, and go there.
      await frame.locator('#canvas').press('0');
      await frame.locator('#canvas').press('h');
      await spoken('where it is', /^The position is at|Enter goes there/);
      const box = await frame.locator('#canvas').boundingBox();
      const found = await search(bench, frame, box);
      await bench.moves(() => bench.page.mouse.click(found.x, found.y));
      await bench.wide(() => bench.image('timeline'));
      await bench.crash(lineOf('int total = bread->price'));
    },
  },
  {
    name: 'the timeline has labels and a short legend in a narrow window',
    async walk({ bench }) {
      const frame = await bench.frameWith('#canvas');
      await narrowed(bench, async () => {
        // The legend has one line, of the states that occur.
        await until('a short legend', () => frame.locator('#legend').evaluate((legend) => legend.clientHeight), (height) => height > 0 && height < 40);
        const states = await frame.locator('#legend > span').allInnerTexts();
        assert(states.includes('off-CPU') && !states.includes('missing'), `${states}`);
        await bench.image('narrow');
      });
      if (bench.wantsImages) {
        await bench.image('crash-light');
        await bench.command('Preferences: Toggle between Light/Dark Themes');
        await bench.image('crash-dark');
        await bench.command('Preferences: Toggle between Light/Dark Themes');
      }
    },
  },
  {
    name: 'the latency of a function leads to its slow calls',
    async walk({ bench, lineOf }) {
      await bench.command('Backtrail: Show Latency of Function');
      await bench.answer('serve');
      const frame = await bench.frameWith('#histogram');
      await until('the calls', () => frame.locator('#status').innerText(), (text) => /^serve: \d+ calls, \d+ of them measured/.test(text));
      assert((await frame.locator('#histogram tr').count()) > 1);
      const rows = frame.locator('#rows tbody tr');
      assert((await rows.count()) >= 6);
      assert.match(await rows.first().innerText(), /[mµn]s/);
      // The call with the most instructions waited for the oven. The longest call is not certain.
      const done = await rows.locator('td:nth-child(4)').evaluateAll((cells) => cells.map((cell) => Number(cell.textContent.replace(/\D/g, ''))));
      const [most, least] = [done.indexOf(Math.max(...done)), done.indexOf(Math.min(...done))];
      await bench.moves(() => rows.nth(most).locator('a').click());
      await bench.at(lineOf('static int serve') + 1);
      await rows.nth(most).locator('input').check();
      await rows.nth(least).locator('input').check();
      await frame.locator('#compare').click();
      await until('what one did and the other did not', () => frame.locator('#text').innerText(), (text) => /bake/.test(text));
      await bench.wide(() => bench.image('latency'));
      await bench.crash(lineOf('int total = bread->price'));
    },
  },
  {
    name: 'a bookmark is kept and leads back',
    async walk({ bench, lineOf, workspace }) {
      const crash = lineOf('int total = bread->price');
      const marked = await bench.position();
      await bench.command('Backtrail: Add Bookmark');
      await bench.answer('no such bread');
      const bookmarks = await bench.section('Bookmarks');
      const mark = bookmarks.locator('.monaco-list-row[aria-label^="Bookmark no such bread"]');
      await mark.waitFor();
      await bench.moves(() => bench.command('Backtrail: Go to Start'));
      await mark.click();
      await bench.at(crash);
      assert.equal(await until('the bookmark', () => bench.position(), (now) => now === marked), marked);
      const file = JSON.parse(readFileSync(path.join(workspace, '.backtrail', 'bookmarks.json'), 'utf8'));
      const kept = Object.values(file.traces).flatMap((trace) => trace.bookmarks);
      assert.deepEqual(kept, [{ name: 'no such bread', position: marked }]);
      await bench.stop();
    },
  },
  {
    name: 'recorded values are shown in the past, and a button goes to the last write',
    async walk({ bench, lineOf }) {
      await bench.command('View: Show Explorer');
      await bench.page.locator('.explorer-folders-view .monaco-list-row[aria-label="values.btz"]').click();
      await bench.at(lineOf('int total = bread->price'));
      await until('the button', () => bench.tools(), (tools) => tools.some((label) => label?.startsWith('Go to Last Write')));
      await bench.moves(async () => {
        await bench.tool('Go to Last Write');
        await bench.answer('list[2]');
      });
      await bench.at(lineOf('list[bread] = NULL;'));
      const variables = await bench.section('Variables');
      await bench.unfold(variables, 'Scope Arguments', 'bread, value 2');
      // An editor of an earlier step can have a hidden one.
      const hovered = () => bench.page.evaluate(() => [...document.querySelectorAll('.debug-hover-widget')]
        .filter((widget) => widget.getBoundingClientRect().width > 0)
        .some((widget) => widget.innerText.trim().split('\n')[0] === '2'));
      await until('the value under the pointer', async () => {
        await bench.page.mouse.move(700, 200);
        await bench.point('bread] = NULL;');
        await bench.page.waitForTimeout(3000);
        return hovered();
      });
      await bench.page.keyboard.press('Escape');
      await bench.image('values');
      await bench.stop();
    },
  },
  {
    name: 'a download is cancelled',
    async walk({ bench, allowed, origins }) {
      let resume;
      allowed.pause = () => new Promise((resolve) => (resume = resolve));
      await follow(bench, link({ origin: origins.allowed, crash: 'bakery' }));
      await bench.dialog('Open', 'Open crash bakery');
      const toast = bench.page.locator('.notifications-toasts .notification-toast', { hasText: 'Downloading crash bakery' });
      await toast.locator('.monaco-button', { hasText: 'Cancel' }).click();
      await toast.waitFor({ state: 'detached' });
      resume?.();
      allowed.pause = async () => {};
      assert(await bench.page.locator('.debug-toolbar').isHidden());
    },
  },
];

/** Zooms by a key, and returns the new length of the window. */
function windowLength(frame, key) {
  return until('the length of the window', async () => {
    await frame.locator('#canvas').press(key);
    return frame.locator('#spoken').innerText();
  }, (text) => /^The window is/.test(text));
}

/** Searches the timeline with the pointer for a call that begins at another position. */
async function search(bench, frame, { x, y, width, height }) {
  const here = await bench.position();
  for (let down = 30; down < height - 5; down += 6) {
    for (let right = 0.99; right > 0.2; right -= 0.01) {
      const at = { x: x + width * right, y: y + down };
      await bench.page.mouse.move(at.x, at.y);
      const tip = await frame.locator('#tip').evaluate((element) => (element.hidden ? '' : element.textContent));
      const begins = /level \d+.*(t\d+#\d+)/s.exec(tip)?.[1];
      if (begins !== undefined && begins !== here) {
        return at;
      }
    }
  }
  throw new Error('no call that begins elsewhere is under the pointer');
}
