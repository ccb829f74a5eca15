/** From a crash on the hub to the editor: the page, its button, the sign-in, and the debugger. */
import assert from 'node:assert/strict';
import { follow } from './links.mjs';
import { until } from './workbench.mjs';

/** The line that crashes. */
const CRASH = 'int total = bread->price';

/** Types the token, which the box hides. */
async function answerSecretly(bench, text) {
  const input = bench.page.locator('.quick-input-widget:visible input[type="password"]');
  await input.fill(text);
  await input.press('Enter');
}

/** Returns the contents of a link of the page's button. */
function contents(address) {
  return JSON.parse(Buffer.from(address.split('?j=')[1], 'base64url').toString('utf8'));
}

export const hub = [
  {
    name: 'the page of the crash has the link',
    async walk(world) {
      const { bench, hub: { address, token, crash } } = world;
      const page = await bench.page.context().newPage();
      const said = [];
      page.on('console', (message) => message.type() === 'error' && said.push(message.text()));
      page.on('pageerror', (error) => said.push(String(error)));
      await page.goto(`${address}/c/${crash}`);
      await page.locator('input[name="token"]').fill(token);
      await page.locator('form[action="/sign-in"] button[type="submit"]').click();
      // The page was asked for, and is shown after the sign-in.
      const button = page.locator('#open-editor');
      await button.waitFor();
      assert.equal(new URL(page.url()).pathname, `/c/${crash}`);
      const link = await button.getAttribute('href');
      assert.deepEqual(contents(link), { v: 1, origin: address, crash });
      // A selected line is the position of the link, also for who opens the shared address.
      await page.locator('#last-lines a.row').first().click();
      const position = await until('a position', () => page.evaluate(() => decodeURIComponent(location.hash.slice(1))));
      const shared = await until('its link', () => button.getAttribute('href'), (href) => href !== link);
      assert.deepEqual(contents(shared), { v: 1, origin: address, crash, at: position });
      await page.screenshot({ path: `${bench.shots}/hub-page.png` });
      await page.reload();
      assert.equal(await until('the same link', () => button.getAttribute('href'), (href) => href !== link), shared);
      assert.deepEqual(said, []);
      await page.close();
      Object.assign(world, { link, shared, position });
    },
  },
  {
    name: 'the link asks for a sign-in and opens at the crash',
    async walk({ bench, hub: { address, token, crash }, link, lineOf }) {
      await bench.ready();
      await follow(bench, link.replace('vscode://', 'code-oss://'));
      const text = await bench.dialog('Sign In to Hub…', `Crashes from ${address} are not opened`);
      assert(text.includes(`A link asks for crash ${crash}`), text);
      await bench.answer(address);
      await answerSecretly(bench, token);
      await bench.dialog('Open', `Open crash ${crash} from ${address}?`);
      await bench.at(lineOf(CRASH));
      await bench.page.locator('.exception-widget').first().waitFor();
    },
  },
  {
    name: 'the crash steps back',
    async walk({ bench, lineOf }) {
      const atCrash = await until('a position', () => bench.position());
      // The crash is in the middle of its line.
      await bench.moves(() => bench.tool('Step Back'));
      await bench.at(lineOf(CRASH));
      await bench.tool('Step Back');
      await bench.at(lineOf('= list[order->bread]'));
      await bench.tool('Step Back');
      await bench.at(lineOf('sum += serve('));
      await bench.crash(lineOf(CRASH));
      await until('the crash', () => bench.position(), (now) => now === atCrash);
      await bench.stop();
    },
  },
  {
    name: 'a shared position opens there',
    async walk({ bench, hub: { address, crash }, shared, position }) {
      await follow(bench, shared.replace('vscode://', 'code-oss://'));
      // Signed in, VS Code asks once.
      await bench.dialog('Open', `Open crash ${crash} from ${address}?`);
      await bench.page.waitForSelector('.debug-toolbar');
      await until('the position of the link', () => bench.position(), (now) => now === position);
      await bench.stop();
    },
  },
  {
    name: 'the crash is among the recent ones',
    async walk({ bench, hub: { title }, lineOf }) {
      await bench.command('View: Show Run and Debug');
      const recent = await bench.section('Recent Crashes');
      const row = recent.locator('.monaco-list-row', { hasText: title });
      // Crashes of other tests come after it. Only rows in view exist.
      await recent.locator('.monaco-list-row').first().hover();
      await until('the crash in the list', async () => {
        await bench.page.mouse.wheel(0, 200);
        return row.count();
      });
      await row.first().click();
      await bench.at(lineOf(CRASH));
      await bench.stop();
    },
  },
];
