/** Drives the page of a VS Code: what a user presses and sees. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';

// The packages are where `cargo xtask vscode` installed them.
const { chromium } = createRequire(path.join(process.env.BACKTRAIL_VSCODE, 'package.json'))('playwright-core');

/** The time limit of short steps, in milliseconds, because the machine may be busy. */
export const PATIENCE = 30_000;

/** Starts the browser, which can only connect to this machine. */
export function browser() {
  return chromium.launch({
    executablePath: process.env.BACKTRAIL_CHROMIUM,
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
    ],
  });
}

/** Repeats a query until the result is as wanted. */
export async function until(what, ask, isRight = Boolean, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const answer = await ask();
    if (isRight(answer)) {
      return answer;
    }
    if (Date.now() > end) {
      throw new Error(`${what}: not after ${patience / 1000} s; it is ${JSON.stringify(answer)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** One VS Code in one page. */
export class Workbench {
  constructor(page, shots) {
    this.page = page;
    this.shots = shots;
    page.setDefaultTimeout(PATIENCE);
  }

  /** Opens a folder. */
  async open(address, folder) {
    await this.page.goto(`${address}/?folder=${encodeURIComponent(folder)}`);
    await this.page.waitForSelector('.explorer-folders-view .monaco-list-row', { timeout: 2 * PATIENCE });
  }

  /** Saves a screenshot. */
  async picture(name) {
    await this.page.screenshot({ path: path.join(this.shots, `${name}.png`) });
  }

  /** Returns whether pictures for the documentation are requested. */
  get wantsImages() {
    return process.env.BACKTRAIL_IMAGES !== undefined;
  }

  /** Saves a picture for the documentation, if requested. */
  async image(name) {
    if (this.wantsImages) {
      // Without the pointer's tooltips.
      await this.page.mouse.move(700, 858);
      await new Promise((resolve) => setTimeout(resolve, 800));
      await this.page.screenshot({ path: path.join(process.env.BACKTRAIL_IMAGES, `${name}.png`) });
    }
  }

  /** Runs `act` with a maximized panel, if pictures are requested. */
  async wide(act) {
    if (this.wantsImages) {
      await this.command('View: Toggle Maximized Panel');
      await act();
      await this.command('View: Toggle Maximized Panel');
    }
  }

  /** Saves the next picture of the animation. */
  async frame() {
    this.frames = (this.frames ?? 0) + 1;
    await this.image(`frame-${String(this.frames).padStart(2, '0')}`);
  }

  /** Runs a command by its title, as the command palette shows it. */
  async command(title) {
    const input = this.page.locator('.quick-input-widget:visible input[type="text"]');
    // A closing box takes no more keys.
    await input.waitFor({ state: 'hidden' });
    for (let tries = 0; ; tries += 1) {
      await this.page.keyboard.press('F1');
      const shown = input.fill(`>${title}`, { timeout: 3000 });
      if (await shown.then(() => true, () => false)) {
        break;
      }
      assert(tries < 5, 'the command palette does not open');
      // The frame of a closed view may still have the keys.
      await this.page.evaluate(() => document.activeElement?.blur());
    }
    await this.choose(title);
  }

  /** Selects the offered entry that begins with this text. */
  async choose(label) {
    const offered = this.page.locator('.quick-input-widget:visible .quick-input-list .monaco-list-row');
    await this.page.locator(`.quick-input-list .monaco-list-row[aria-label^="${label}"]`).first().waitFor();
    // By keys, because the debugger's toolbar may cover the list. Keys go to the box, because the
    // editor may take the focus.
    const input = this.page.locator('.quick-input-widget:visible input[type="text"]');
    const focused = offered.and(this.page.locator('.focused'));
    for (let tries = 0; tries < 100; tries += 1) {
      const labels = await focused.evaluateAll((rows) => rows.map((row) => row.ariaLabel));
      if (labels.some((one) => one?.startsWith(label))) {
        await input.press('Enter');
        return;
      }
      // Slowly, because the list may still change.
      await new Promise((resolve) => setTimeout(resolve, 150));
      if (tries % 2 === 1) {
        await input.press('ArrowDown');
      }
    }
    throw new Error(`${label} cannot be chosen`);
  }

  /** Types into the open input box. */
  async answer(text) {
    const input = this.page.locator('.quick-input-widget:visible input[type="text"]');
    await until('a box to type in', () => input.inputValue(), (value) => !value.startsWith('>'));
    await input.fill(text);
    await input.press('Enter');
  }

  /** Waits until VS Code has read our extension's manifest. */
  async ready() {
    const ours = this.page.locator('.quick-input-list .monaco-list-row[aria-label^="Backtrail: Open Trace"]');
    await until('our extension', async () => {
      await this.page.keyboard.press('F1');
      const input = this.page.locator('.quick-input-widget:visible input[type="text"]');
      await input.fill('>Backtrail: Open Trace', { timeout: 3000 }).catch(() => {});
      const isThere = await ours.waitFor({ timeout: 1000 }).then(() => true, () => false);
      await this.page.keyboard.press('Escape');
      return isThere;
    }, Boolean, 2 * PATIENCE);
  }

  /**
   * Presses F5 until a session shows. Before the launch configurations are read, F5 only opens a
   * view.
   */
  async start() {
    const again = this.page.locator('.monaco-dialog-box', { hasText: 'already running' });
    for (let tries = 0; ; tries += 1) {
      await this.page.keyboard.press('F5');
      const shown = this.page.waitForSelector('.debug-toolbar', { timeout: 8000 });
      if (await shown.then(() => true, () => false)) {
        break;
      }
      assert(tries < 8, 'F5 starts nothing');
    }
    if (await again.isVisible()) {
      await again.locator('.monaco-button', { hasText: 'Cancel' }).click();
    }
  }

  /** Ends the session. */
  async stop() {
    await this.tool('Stop');
    await this.page.waitForSelector('.debug-toolbar', { state: 'hidden' });
  }

  /** Presses a button of the toolbar after it is enabled. */
  async tool(label) {
    const button = (named) => `.debug-toolbar .action-label[aria-label${named}"]:not(.disabled)`;
    // The label may end with a key.
    await this.page.locator(`${button(`="${label}`)}, ${button(`^="${label} (`)}`).first().click();
  }

  /** The labels of the toolbar's buttons. */
  tools() {
    return this.page.locator('.debug-toolbar .action-label').evaluateAll((all) => all.map((one) => one.ariaLabel));
  }

  /** Returns the line that the editor marks as executed next. */
  line() {
    return this.page.evaluate(() => {
      const mark = document.querySelector('.debug-top-stack-frame-line, .debug-focused-stack-frame-line');
      if (mark === null) {
        return null;
      }
      const top = (element) => Math.round(element.getBoundingClientRect().top);
      const numbers = mark.closest('.monaco-editor')?.querySelectorAll('.line-numbers') ?? [];
      const beside = [...numbers].find((number) => Math.abs(top(number) - top(mark)) < 4);
      return beside === undefined ? null : Number(beside.textContent);
    });
  }

  /** Waits until the editor shows that line as executed next. */
  async at(line) {
    await until(`line ${line}`, () => this.line(), (shown) => shown === line);
  }

  /** Goes to the crash, which is in that line. */
  async crash(line) {
    await this.tool('Go to Crash');
    await this.at(line);
    // The widget takes the keys when it appears.
    await this.page.locator('.exception-widget').first().waitFor();
  }

  /** The position that the status bar shows. */
  async position() {
    const item = this.page.locator('.statusbar-item[id$="backtrail.position"]');
    const text = (await item.count()) === 0 ? '' : await item.first().innerText();
    return /t\d+#\d+/.exec(text)?.[0];
  }

  /** Runs a move, and returns the position after it. */
  async moves(act) {
    const before = await this.position();
    await act();
    return until('another position', () => this.position(), (now) => now !== undefined && now !== before);
  }

  /** Opens a file of the workspace. */
  async file(name) {
    await this.page.keyboard.press('Control+P');
    const input = this.page.locator('.quick-input-widget:visible input[type="text"]');
    await input.fill(name);
    await this.choose(name);
    await this.page.waitForSelector(`.tab.active[aria-label^="${name}"]`);
  }

  /** Puts the cursor in a line of the editor. */
  async cursor(line) {
    await this.page.keyboard.press('Control+G');
    await this.answer(`:${line}`);
    await until('the cursor there', () => this.page.locator('.statusbar-item[id="status.editor.selection"]').innerText(), (text) =>
      text.startsWith(`Ln ${line},`),
    );
  }

  /** Puts the pointer over a text in the editor, if visible. */
  async point(text) {
    const at = await this.page.evaluate((wanted) => {
      for (const line of document.querySelectorAll('.monaco-editor .view-line')) {
        const begin = line.textContent.replaceAll('\u00a0', ' ').indexOf(wanted);
        const nodes = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
        for (let before = 0; begin >= 0 && nodes.nextNode(); before += nodes.currentNode.length) {
          if (begin < before + nodes.currentNode.length) {
            const range = document.createRange();
            range.setStart(nodes.currentNode, begin - before);
            range.setEnd(nodes.currentNode, begin - before + 1);
            const { left, right, top, bottom } = range.getBoundingClientRect();
            return { x: (left + right) / 2, y: (top + bottom) / 2 };
          }
        }
      }
      return undefined;
    }, text);
    if (at !== undefined) {
      await this.page.mouse.move(at.x - 3, at.y);
      await this.page.mouse.move(at.x, at.y);
    }
  }

  /** Presses a button of a dialog over the page, and returns the text of the dialog. */
  async dialog(button, about) {
    const dialog = this.page.locator('.monaco-dialog-box').filter({ hasText: about });
    await dialog.waitFor();
    const text = await dialog.innerText();
    await dialog.locator('.monaco-button').filter({ hasText: new RegExp(`^${button}$`) }).click();
    await dialog.waitFor({ state: 'detached' });
    return text;
  }

  /** Unfolds a section of the side bar, and folds those that take its space. */
  async section(name) {
    const headers = this.page.locator('.part.sidebar .pane-header');
    await headers.and(this.page.locator(`[aria-label^="${name}"]`)).waitFor();
    for (const header of await headers.all()) {
      const isIt = (await header.getAttribute('aria-label')).startsWith(name);
      if (((await header.getAttribute('aria-expanded')) === 'true') !== isIt) {
        await header.click({ position: { x: 30, y: 10 } });
      }
    }
    return this.page.locator('.part.sidebar .pane').filter({ has: this.page.locator(`.pane-header[aria-label^="${name}"]`) });
  }

  /** Unfolds a row of a section until the row `inner` shows. New values may fold it again. */
  async unfold(section, label, inner) {
    const row = section.locator(`.monaco-list-row[aria-label^="${label}"]`).first();
    const wanted = section.locator(`.monaco-list-row[aria-label^="${inner}"]`).first();
    await until(`${inner} under ${label}`, async () => {
      await row.waitFor();
      if ((await row.getAttribute('aria-expanded')) === 'false') {
        await row.locator('.monaco-tl-twistie').click({ timeout: 3000 }).catch(() => {});
      }
      // Its children are requested from the debugger first. Another click during the request would
      // fold it.
      return wanted.waitFor({ timeout: 3000 }).then(() => true, () => false);
    });
  }

  /** Returns the document of our webview that has this element. */
  frameWith(selector) {
    const has = async (frame) => {
      try {
        return (await frame.locator(selector).count()) > 0;
      } catch {
        // The frame was replaced during the query.
        return false;
      }
    };
    return until(`a webview with ${selector}`, async () => {
      for (const frame of this.page.frames()) {
        if (await has(frame)) {
          return frame;
        }
      }
      return undefined;
    });
  }
}
