/** Opening a crash: by a launch configuration, by its file, and by links. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { follow, link } from './links.mjs';
import { until } from './workbench.mjs';

/** The line that crashes. */
const CRASH = 'int total = bread->price';

export const opening = [
  {
    name: 'F5 opens the crash of the launch configuration',
    async walk({ bench, lineOf }) {
      await bench.ready();
      await bench.start();
      await bench.at(lineOf(CRASH));
      const tools = await bench.tools();
      for (const wanted of ['Step Back', 'Reverse', 'Reverse Step Into', 'Reverse Step Out']) {
        assert(tools.some((label) => label?.startsWith(wanted)), `${wanted} is not among ${tools}`);
      }
      await bench.stop();
    },
  },
  {
    name: 'a later session opens Run and Debug, for a file in the Explorer',
    async walk({ bench, lineOf }) {
      await bench.command('View: Show Explorer');
      await bench.page.locator('.explorer-folders-view .monaco-list-row[aria-label="crash.btz"]').click();
      await bench.at(lineOf(CRASH));
      // The Explorer was open, and this is not the first session.
      await bench.page.locator('.debug-viewlet').waitFor();
    },
  },
  {
    name: 'the signal of the crash does not cut the name of its thread',
    async walk({ bench }) {
      const stack = await bench.section('Call Stack');
      const thread = stack.locator('.thread').filter({ hasText: 'SIGSEGV' }).first();
      await thread.waitFor();
      const { name, state } = await thread.evaluate((row) => {
        const widths = (part) => ({ text: part?.textContent, shown: part?.clientWidth ?? 0, whole: part?.scrollWidth ?? 0 });
        return { name: widths(row.querySelector('.name')), state: widths(row.querySelector('.state')) };
      });
      assert.match(name.text ?? '', /^baker-west ✕ \(\d+\)/);
      assert(name.shown >= name.whole, `${JSON.stringify(name)} beside ${JSON.stringify(state)}`);
      await bench.stop();
    },
  },
  {
    name: 'recent crashes are listed with signal and function',
    async walk({ bench, lineOf }) {
      await bench.command('Backtrail: Open Recent Crash');
      const row = bench.page.locator('.quick-input-list .monaco-list-row[aria-label^="crash.btz"]');
      await until('the summary', () => row.first().innerText(), (text) => /SIGSEGV in \w+/.test(text));
      await row.first().click();
      await bench.at(lineOf(CRASH));
      await bench.stop();
    },
  },
  {
    name: 'a link to a stranger is refused',
    async walk({ bench, stranger, origins }) {
      await follow(bench, link({ origin: origins.stranger, crash: 'bakery' }));
      const text = await bench.dialog('Cancel', `Crashes from ${origins.stranger} are not opened`);
      assert(text.includes('backtrail.allowedOrigins'), text);
      assert.deepEqual(stranger.log, []);
      assert(await bench.page.locator('.debug-toolbar').isHidden());
    },
  },
  {
    name: 'a link opens the crash where it says',
    async walk({ bench, allowed, origins, lineOf, packed }) {
      const sha256 = createHash('sha256').update(readFileSync(packed)).digest('hex');
      await follow(bench, link({ origin: origins.allowed, crash: 'bakery', at: '#-40', sha256 }));
      const text = await bench.dialog('Open', `Open crash bakery from ${origins.allowed}?`);
      assert(text.includes('#-40'), text);
      await bench.page.waitForSelector('.debug-toolbar');
      const position = await until('a position', () => bench.position());
      // A second try from the start has the first download, and asks for nothing.
      const request = 'GET /crash/bakery.btz';
      assert.deepEqual([...new Set([request, ...allowed.log])], [request]);
      // Not at the crash, which is the position without a link.
      const line = await until('a line', () => bench.line());
      assert.notEqual(line, lineOf(CRASH), position);
      await bench.stop();
    },
  },
  {
    name: "the collector's link opens a crash of the spool",
    async walk({ bench, collected, lineOf }) {
      await follow(bench, collected);
      const text = await bench.dialog('Open', 'Open crash 000007-bakery-42 that the collector kept here?');
      assert(text.includes('nothing is downloaded'), text);
      await bench.at(lineOf(CRASH));
      await bench.stop();
    },
  },
];
