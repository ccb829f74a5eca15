/** A profile in a panel: the component of reports, sources, and weights of lines. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { until } from './workbench.mjs';

/** Answers the dialog for a profile. */
async function choose(bench, file) {
  await bench.answer(file);
  // The box for a path may set its own folder after the first keys.
  const box = bench.page.locator('.quick-input-widget:visible input[type="text"]');
  await until('the panel', async () => {
    if (await box.isVisible()) {
      await box.fill(file, { timeout: 3000 }).catch(() => {});
      await box.press('Enter', { timeout: 3000 }).catch(() => {});
    }
    return bench.page.locator(`.tab[aria-label^="${path.basename(file)}"]`).isVisible();
  });
}

export const profile = [
  {
    name: 'a profile opens with its flame graph and leads to sources',
    async walk({ bench, lineOf, workspace }) {
      await bench.ready();
      // A key that comes after the box has closed would go into a source.
      await bench.command('View: Close All Editors');
      await bench.command('Backtrail: Open Profile…');
      await choose(bench, path.join(workspace, 'bakery.otlp'));
      const frame = await bench.frameWith('#panel-graph canvas');
      assert.equal(await frame.locator('.summary').textContent(), 'cpu: 3.00 s (100.0%)');
      const said = () => frame.locator('[role=status]').textContent();
      await frame.locator('#panel-graph canvas').press('ArrowDown');
      assert.match(await said(), /^serve: total 2\.00 s \(66\.7%\).*bakery\.c/);
      await bench.image('profile');
      await frame.locator('#panel-graph canvas').press('o');
      await bench.page.waitForSelector('.tab[aria-label^="bakery.c"]');
      const marks = await until('weights of lines', () => bench.page.evaluate(() => {
        const top = (element) => Math.round(element.getBoundingClientRect().top);
        const bars = [...document.querySelectorAll('.glyph-margin-widgets > *, .margin-view-overlays .cgmr')].filter((mark) =>
          getComputedStyle(mark).backgroundImage.includes('data:image/svg+xml'));
        const numbers = [...document.querySelectorAll('.margin-view-overlays .line-numbers')];
        return bars.map((bar) => Number(numbers.find((number) => Math.abs(top(number) - top(bar)) < 4)?.textContent));
      }), (lines) => lines.includes(lineOf('int total = bread->price')));
      assert(marks.length <= 2, `${marks}`);
    },
  },
  {
    name: 'the slowest call of a bundle opens in the debugger',
    async walk({ bench, lineOf, workspace }) {
      await bench.ready();
      await bench.command('View: Close All Editors');
      await bench.command('Backtrail: Open Profile…');
      await choose(bench, path.join(workspace, 'crash.btz'));
      const frame = await bench.frameWith('#panel-graph canvas');
      await frame.getByRole('tab', { name: 'Table' }).click();
      await frame.getByRole('searchbox').fill('^checksum$');
      const row = frame.locator('#panel-table tbody tr');
      await until('one function', () => row.count(), (count) => count === 1);
      await row.getByRole('button').click();
      await frame.locator('#panel-sandwich').getByRole('button', { name: 'Open the slowest call' }).first().click();
      const said = await frame.locator('[role=status]').textContent();
      assert.match(said, /^checksum: the slowest of \d+ calls took .* instructions/);
      await bench.page.waitForSelector('.debug-toolbar');
      await bench.at(lineOf('static int checksum') + 1);
      await bench.stop();
    },
  },
];
