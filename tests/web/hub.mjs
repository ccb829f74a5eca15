/** Opens the hub's pages in a browser: their content, keys, themes and sizes. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { browser, until } from '../vscode/workbench.mjs';
import { AXE, PHONE, Person, image } from './person.mjs';

const { BACKTRAIL_HUB, BACKTRAIL_PAGES, BACKTRAIL_STOPPED, BACKTRAIL_TOKENS } = process.env;
const PAGES = JSON.parse(readFileSync(BACKTRAIL_PAGES, 'utf8'));
const [ADMIN, READER] = BACKTRAIL_TOKENS.split(',');

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
