/** Views at the crash: variables, values in the source, executed lines, and the code. */
import assert from 'node:assert/strict';
import { until } from './workbench.mjs';

const row = (label) => `.monaco-list-row[aria-label^="${label}"]`;

export const looking = [
  {
    name: 'variables have their values',
    async walk({ bench }) {
      const variables = await bench.section('Variables');
      await bench.unfold(variables, 'Scope Arguments', 'order, value');
      await variables.locator(row('bread, value 0x0')).waitFor();
      await variables.locator(row('total, value 3')).waitFor();
      const order = variables.locator(row('order, value'));
      assert.match(await order.getAttribute('aria-label'), /<west\+\d+>/);
      await bench.unfold(variables, 'order, value', 'bread, value 2');
      await variables.locator(row('count, value 4')).waitFor();
    },
  },
  {
    name: 'a watched expression and one under the pointer',
    async walk({ bench, lineOf }) {
      const watch = await bench.section('Watch');
      await watch.locator('.pane-header').hover();
      await watch.locator('.action-label[aria-label="Add Expression"]').click();
      await bench.page.keyboard.type('baker->takings + order->count');
      await bench.page.keyboard.press('Enter');
      await watch.locator(row('baker->takings + order->count, value 55')).waitFor();
      const shown = bench.page.locator('.debug-hover-widget .monaco-list-row', { hasText: 'count' });
      await bench.cursor(lineOf('int total = bread->price'));
      await until('what is under the pointer', async () => {
        await bench.page.mouse.move(700, 200);
        await bench.point('order->count;');
        return shown.first().waitFor({ timeout: 4000 }).then(() => true, () => false);
      });
      await bench.picture('hover');
      await bench.page.keyboard.press('Escape');
    },
  },
  {
    name: 'a failing watch is a value, and no message',
    async walk({ bench }) {
      const toasts = bench.page.locator('.notifications-toasts .notification-toast').filter({ hasText: 'no_such_name' });
      const watch = await bench.section('Watch');
      await watch.locator('.pane-header').hover();
      await watch.locator('.action-label[aria-label="Add Expression"]').click();
      await bench.page.keyboard.type('no_such_name');
      await bench.page.keyboard.press('Enter');
      const failing = watch.locator(row('no_such_name, value <'));
      await failing.waitFor();
      await new Promise((resolve) => setTimeout(resolve, 1000));
      assert.equal(await toasts.count(), 0, `${await toasts.allInnerTexts()}`);
      await failing.click();
      await bench.page.keyboard.press('Delete');
      await failing.waitFor({ state: 'detached' });
    },
  },
  {
    name: 'values stand in the source, and marks beside executed lines',
    async walk({ bench, lineOf }) {
      await bench.cursor(lineOf('int total = bread->price'));
      const line = bench.page.locator('.view-line', { hasText: '= list[order->bread];' });
      await until('a value in the source', () => line.first().innerText(), (text) => /bread\s=\s0x0/.test(text));
      const marked = () =>
        bench.page.evaluate(() => {
          const top = (element) => Math.round(element.getBoundingClientRect().top);
          const marks = [...document.querySelectorAll('.glyph-margin-widgets > *, .margin-view-overlays .cgmr')].filter((mark) =>
            getComputedStyle(mark).backgroundImage.includes('executed-'),
          );
          const numbers = [...document.querySelectorAll('.margin-view-overlays .line-numbers')];
          const lines = marks.map((mark) => numbers.find((number) => Math.abs(top(number) - top(mark)) < 4)?.textContent);
          return lines.filter(Boolean).map(Number).sort((one, other) => one - other);
        });
      const executed = await until('marks', marked, (lines) => lines.includes(lineOf('return sum & 1023;')));
      for (const text of ['= list[order->bread]', 'int total = bread->price', 'for (; *name; name++)']) {
        assert(executed.includes(lineOf(text)), `${text} is not among ${executed}`);
      }
      // Lines between functions have no code.
      assert(!executed.includes(lineOf('static int serve') - 1), `${executed}`);
    },
  },
  {
    name: 'the disassembly steps by instructions',
    async walk({ bench, lineOf }) {
      await bench.command('Open Disassembly View');
      const view = bench.page.locator('.disassembly-view');
      await view.locator('.monaco-list-row', { hasText: /mov/ }).first().waitFor();
      const here = view.locator('.monaco-list-row:has(.codicon-debug-stackframe)');
      await here.first().waitFor();
      const before = await bench.position();
      await here.first().click();
      const after = await bench.moves(() => bench.page.keyboard.press('Shift+F11'));
      const index = (position) => Number(position.split('#')[1]);
      assert.equal(index(after), index(before) - 1);
      await bench.picture('disassembly-back');
      await bench.command('View: Close Editor');
      await view.waitFor({ state: 'detached' });
      await bench.crash(lineOf('int total = bread->price'));
    },
  },
];
