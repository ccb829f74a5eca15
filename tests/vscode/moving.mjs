/** Moves through the crash: by buttons, keys, breakpoints, and debugger commands. */
import assert from 'node:assert/strict';
import { until } from './workbench.mjs';

/** Types a command into the debug console. */
async function type(bench, text) {
  await bench.command('Debug Console: Focus on Debug Console View');
  await bench.page.locator('.repl-input-wrapper .monaco-editor').click();
  await bench.page.keyboard.type(text);
  await bench.page.keyboard.press('Enter');
}

export const moving = [
  {
    name: 'steps back over, into and out of calls',
    async walk({ bench, lineOf }) {
      const [crash, first, call] = [lineOf('int total = bread->price'), lineOf('= list[order->bread]'), lineOf('sum += serve(')];
      await bench.start();
      await bench.at(crash);
      const atCrash = await until('a position', () => bench.position());
      // The crash is in the middle of its line.
      const beginning = await bench.moves(() => bench.tool('Step Back'));
      await bench.at(crash);
      await bench.tool('Step Back');
      await bench.at(first);
      await bench.tool('Step Back');
      await bench.at(call);
      await bench.page.keyboard.press('Shift+F10');
      await bench.at(lineOf('at < ORDERS; at++'));
      // Before that line came the end of the call before.
      await bench.page.keyboard.press('Shift+F11');
      await bench.at(lineOf('return checksum(bread->name);') + 1);
      await bench.tool('Reverse Step Into');
      await bench.at(lineOf('return sum & 1023;') + 1);
      await bench.tool('Reverse Step Out');
      await bench.at(lineOf('return checksum(bread->name);'));
      await bench.page.keyboard.press('Control+Shift+F11');
      await bench.at(call);
      // Forward again, over the call and to the crash.
      await bench.tool('Step Over');
      await bench.at(lineOf('at < ORDERS; at++'));
      await bench.crash(crash);
      assert.equal(await until('the crash', () => bench.position(), (now) => now === atCrash), atCrash);
      await bench.tool('Back: Undo Move');
      await bench.at(lineOf('at < ORDERS; at++'));
      await bench.page.keyboard.press('Alt+Shift+F11');
      await bench.at(crash);
      assert.notEqual(beginning, atCrash);
    },
  },
  {
    name: 'a breakpoint stops on the way back',
    async walk({ bench, lineOf }) {
      const cause = lineOf('list[bread] = NULL;');
      await bench.cursor(lineOf('int total = bread->price'));
      await bench.frame();
      await bench.cursor(cause);
      await bench.page.keyboard.press('F9');
      await bench.page.locator('.glyph-margin-widgets .codicon-debug-breakpoint').first().waitFor();
      await bench.frame();
      await bench.tool('Reverse');
      await bench.at(cause);
      const stack = await bench.section('Call Stack');
      await bench.unfold(stack, 'Thread baker-west', 'Stack Frame strike, line');
      await bench.frame();
      // The cause of the removal: out to the call, and back over the lines before it.
      await bench.tool('Reverse Step Out');
      await bench.at(lineOf('strike(order->bread);'));
      await bench.frame();
      // The call is in the middle of its line.
      await bench.moves(() => bench.tool('Step Back'));
      await bench.tool('Step Back');
      await bench.at(lineOf('if (bread->loaves == 0)'));
      await bench.frame();
      await bench.tool('Step Back');
      await bench.at(lineOf('bread->loaves -= order->count;'));
      await bench.frame();
      // No bread was removed before in this thread, so the start of its history is next.
      await bench.moves(() => bench.tool('Reverse'));
      await bench.tool('Continue');
      await bench.at(cause);
      await bench.tool('Continue');
      await bench.at(lineOf('int total = bread->price'));
      await bench.command('Remove All Breakpoints');
      await bench.page.locator('.glyph-margin-widgets .codicon-debug-breakpoint').waitFor({ state: 'detached' });
    },
  },
  {
    name: 'the debug console takes commands',
    async walk({ bench, lineOf }) {
      await type(bench, 'reverse-step');
      await bench.moves(() => type(bench, 'reverse-step'));
      await bench.at(lineOf('= list[order->bread]'));
      await type(bench, 'goto crash');
      await bench.at(lineOf('int total = bread->price'));
      await type(bench, 'print order->count');
      await bench.page.locator('.repl .monaco-list-row', { hasText: '4' }).first().waitFor();
    },
  },
  {
    name: 'an error of the adapter is shown once',
    async walk({ bench }) {
      const shown = bench.page.locator('.notifications-toasts .notification-toast').filter({ hasText: 'no_such_place' });
      assert.equal(await shown.count(), 0);
      await bench.command('Backtrail: Go to Position…');
      await bench.answer('no_such_place');
      await shown.first().waitFor();
      // A second message, of VS Code itself, would come with the same response.
      await new Promise((resolve) => setTimeout(resolve, 2000));
      assert.equal(await shown.count(), 1, `${await shown.allInnerTexts()}`);
      await bench.command('Notifications: Clear All Notifications');
      await shown.waitFor({ state: 'detached' });
    },
  },
];
