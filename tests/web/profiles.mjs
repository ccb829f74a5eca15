/** Opens the hub's pages of profiles: charts, parts of the time, searches, changes, saved views. */
import assert from 'node:assert/strict';
import { browser, until } from '../vscode/workbench.mjs';
import { PHONE, Person, image } from './person.mjs';

const { BACKTRAIL_CRASH, BACKTRAIL_HUB, BACKTRAIL_JOBS, BACKTRAIL_MINUTE, BACKTRAIL_TOKENS } = process.env;
const [ADMIN, READER] = BACKTRAIL_TOKENS.split(',');
/** The minute that all profiles are of, as `2026-11-29T09:30`, and the next one. */
const MINUTE = BACKTRAIL_MINUTE;
const NEXT = new Date(Date.parse(`${MINUTE}:00Z`) + 60_000).toISOString().slice(0, 16);
const TIMES = `from=${MINUTE}:00&until=${NEXT}:00`;
/** Returns a time in the minute as it is in addresses. */
const encoded = (rest) => encodeURIComponent(`${MINUTE}:${rest}`);

/** Returns the page in the frame, when it has a summary. */
async function view({ page }) {
  const frame = page.frameLocator('#profile');
  await frame.locator('.summary').waitFor();
  return frame;
}

async function summaryOf(person, expected) {
  const frame = await view(person);
  await until(expected, () => frame.locator('.summary').textContent().catch(() => ''), (text) => text === expected);
}

/** The weights over time: a drag selects a shorter time. */
async function overTime(person) {
  const { page } = person;
  await person.open('profiles', `/profiles?${TIMES}&service=shop`, 'Profiles');
  await summaryOf(person, 'cpu: 30.00 s (100.0%)');
  await person.see('profiles', 'Over time', 'Heat map', 'Distribution', 'Idle threads', 'cpu in each 500 ms; drag', 'Link to these times');
  await image(person, 'hub-profiles');
  await image(person, 'hub-profiles-dark', undefined, 'dark');
  await image(person, 'hub-profiles-phone', PHONE);
  await person.check('profiles');
  // Threads that wait are left out.
  await page.getByLabel('Idle threads').selectOption('hide');
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await page.waitForURL(/idle=hide/);
  await summaryOf(person, 'cpu: 27.00 s (100.0%)');
  await page.getByLabel('Idle threads').selectOption('');
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await page.waitForURL((url) => !url.search.includes('idle'));
  const box = await page.locator('#series svg').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 2, box.y + 30, { steps: 4 });
  await page.mouse.up();
  await page.waitForURL((url) => url.search.includes(`from=${encoded('30')}`));
  await summaryOf(person, 'cpu: 15.00 s (100.0%)');
}

/** A cell of the heat map selects its time, by pointer and keys. The map stays. */
async function heatMap(person) {
  const { page } = person;
  await person.open('heat map', `/profiles?${TIMES}&service=shop`, 'Profiles');
  await page.getByRole('link', { name: 'Heat map' }).click();
  await page.waitForURL(/chart=heat/);
  await summaryOf(person, 'cpu: 30.00 s (100.0%)');
  await person.see('heat map', 'a column is 1 s, and a row in it is 20 ms');
  const svg = page.locator('#heat svg');
  const [columns, rows] = [60, 50];
  const cell = async (column, row) => {
    const box = await svg.boundingBox();
    return [box.x + ((column + 0.5) * box.width) / columns, box.y + ((rows - row - 0.5) * box.height) / rows];
  };
  await page.mouse.move(...await cell(20, 25));
  const shown = MINUTE.replace('T', ' ');
  assert.equal(await person.text('#heat-cell'), `${shown}:20.5 to ${shown}:20.52 UTC: 10.00 ms`);
  await page.mouse.down();
  await page.mouse.up();
  await summaryOf(person, 'cpu: 10.00 ms (100.0%)');
  assert(page.url().endsWith(`chart=heat&part_from=${encoded('20.5')}&part_until=${encoded('20.52')}`), page.url());
  await person.see('part', `The profile is that of ${MINUTE}:20.5 to ${MINUTE}:20.52 UTC.`);
  // A spike of 100 ms at the beginning of the 41st second is in one function.
  await page.mouse.move(...await cell(40, 0));
  await page.mouse.down();
  await page.mouse.move(...await cell(40, 4), { steps: 3 });
  await page.mouse.up();
  const frame = await view(person);
  await until('the spike', () => frame.locator('.summary').textContent().catch(() => ''), (text) => text.startsWith('cpu: 50.00 ms'));
  await frame.getByRole('tab', { name: 'Table' }).click();
  await frame.getByRole('button', { name: 'spike', exact: true }).waitFor();
  await image(person, 'hub-profiles-heat');
  await image(person, 'hub-profiles-heat-phone', PHONE);
  await person.check('heat map');
  // The same by keys: the first cell, and the four after it.
  await svg.focus();
  await page.keyboard.press('Home');
  for (let step = 0; step < 4; step += 1) {
    await page.keyboard.press('Shift+ArrowUp');
  }
  assert((await person.text('#heat-cell')).startsWith(`${shown}:00 to ${shown}:00.1 UTC`));
  await page.keyboard.press('Enter');
  await page.waitForURL((url) => url.search.includes(`part_until=${encoded('00.1')}`));
  await summaryOf(person, 'cpu: 50.00 ms (100.0%)');
  // A reload shows the same, and the button all times.
  await page.reload();
  await summaryOf(person, 'cpu: 50.00 ms (100.0%)');
  await page.getByRole('button', { name: 'Show all times' }).click();
  await summaryOf(person, 'cpu: 30.00 s (100.0%)');
  assert.doesNotMatch(page.url(), /part_/);
}

/** The distribution of samples, and of sums. */
async function distribution(person) {
  const { page } = person;
  await person.open('distribution', `/profiles?${TIMES}&service=shop&chart=distribution`, 'Profiles');
  await person.see('distribution', 'Median', '10.0 ms', '3,000');
  await page.getByRole('link', { name: 'Hosts' }).click();
  await page.waitForURL(/per=host/);
  await person.see('distribution of hosts', 'the sum in each 1 s', '500.0 ms');
  await image(person, 'hub-profiles-distribution');
  await person.check('distribution');
}

/** Searches, parts of stacks and tabs are in links and saved views. */
async function saved(person, window) {
  const { page } = person;
  await person.open('search', `/profiles?${TIMES}&service=shop`, 'Profiles');
  const frame = await view(person);
  await frame.getByRole('searchbox').fill('^handle$');
  await frame.getByRole('combobox', { name: 'Parts of stacks' }).selectOption('callees');
  await frame.getByRole('tab', { name: 'Tree' }).click();
  await page.getByText('Link to these times').click();
  await until('the copy', () => person.text('#shared'), (text) => text === 'copied');
  const link = await page.evaluate(() => navigator.clipboard.readText());
  const parameters = new URL(link).searchParams;
  assert.deepEqual(['find', 'keep', 'view', 'from'].map((name) => parameters.get(name)), ['^handle$', 'callees', 'tree', `${MINUTE}:00`]);
  await page.locator('summary', { hasText: 'Saved views' }).click();
  await person.see('no views', 'No view is saved yet.');
  await page.getByLabel('Name', { exact: true }).fill('<i>handlers</i>');
  await page.getByRole('button', { name: 'Save this view' }).click();
  await page.waitForURL(/find=%5Ehandle%24&keep=callees&view=tree$/);
  const again = await view(person);
  await until('the kept part', () => again.locator('.summary').textContent(), (text) => text.endsWith('with the callees of matches only'));
  assert.equal(await again.getByRole('tab', { name: 'Tree' }).getAttribute('aria-selected'), 'true');

  // Another person sees the view, and cannot delete it.
  const reader = await Person.enter(window, READER);
  await reader.open('views of a reader', `/profiles?${TIMES}&service=shop`, 'Profiles');
  await reader.page.locator('summary', { hasText: 'Saved views' }).click();
  assert.equal(await reader.page.getByRole('button', { name: /^Delete/ }).count(), 0);
  await reader.page.getByRole('link', { name: '<i>handlers</i>' }).click();
  await reader.page.waitForURL(/view=tree$/);
  await reader.close();

  await page.locator('summary', { hasText: 'Saved views' }).click();
  await page.getByRole('button', { name: 'Delete <i>handlers</i>' }).click();
  await page.waitForURL(`${BACKTRAIL_HUB}/profiles`);
  assert.equal(await page.getByRole('link', { name: '<i>handlers</i>' }).count(), 0);
}

/** Two builds as a flame graph and as a tree with its changes. */
async function comparison(person) {
  await person.open('comparison', `/profiles?${TIMES}&service=cart&build=2&compare=other&base_build=1&view=tree`, 'Profiles');
  const frame = await view(person);
  const rows = () => frame.locator('#panel-tree tbody tr').evaluateAll((all) =>
    all.map((one) => `${one.querySelector('td').textContent} ${one.querySelector('th').textContent.trim()}`));
  assert.equal(await frame.getByRole('tab', { name: 'Tree' }).getAttribute('aria-selected'), 'true');
  for (const [kind, name] of [['new', 'compress'], ['removed', 'checksum']]) {
    await frame.getByRole('combobox', { name: 'Changes' }).selectOption(kind);
    const found = await rows();
    assert(found.some((row) => row === `${kind} ${name}`) && found.length === 2, `${kind}: ${found}`);
  }
  await frame.getByRole('combobox', { name: 'Changes' }).selectOption('changed');
  await image(person, 'hub-profiles-diff');
}

/** A function of a profile leads to the crashes with it. */
async function crashes(person) {
  const { page } = person;
  await person.open('crashes', `/profiles?${TIMES}&service=shop&view=table`, 'Profiles');
  const frame = await view(person);
  await frame.getByRole('link', { name: 'Crashes with spike' }).click();
  await page.waitForURL(`${BACKTRAIL_HUB}/?function=spike`);
  await person.see('no crash', 'No group matches');
  assert.equal(await page.getByRole('combobox', { name: 'Function' }).inputValue(), 'spike');
  await person.check('crashes with a function');
  // From the flame graph, by keys.
  await person.open('crashes', `/profiles?${TIMES}&service=shop`, 'Profiles');
  const graph = (await view(person)).locator('#panel-graph canvas');
  await graph.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('x');
  await page.waitForURL(`${BACKTRAIL_HUB}/?function=main`);
}

/** A function of a profile leads to its exact calls in a bundle, and from there to the debugger. */
async function exactCalls(person) {
  const { page } = person;
  await person.open('exact calls', `/profiles?${TIMES}&service=ledger`, 'Profiles');
  const graph = (await view(person)).locator('#panel-graph canvas');
  await graph.focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('e');
  await page.waitForURL(`${BACKTRAIL_HUB}/calls?function=settle`);
  await person.see('exact calls', 'Exact calls of settle', '1 bundle', 'Reverse debug', 'ledger');
  await image(person, 'hub-calls');
  await image(person, 'hub-calls-phone', PHONE);
  await person.check('exact calls');
  const position = await person.text('main table code');
  const link = await page.getByRole('link', { name: /^Reverse debug at/ }).getAttribute('href');
  const opened = JSON.parse(Buffer.from(link.split('?j=')[1], 'base64url').toString());
  assert.deepEqual(opened, { v: 1, origin: BACKTRAIL_HUB, crash: BACKTRAIL_CRASH, at: position });
  // The page of the crash is at the call too.
  await page.getByRole('link', { name: position, exact: true }).click();
  await page.waitForURL((url) => url.pathname === `/c/${BACKTRAIL_CRASH}`);
  await until('the position', () => person.text('#at-position'), (text) => text === position);
  await person.open('no exact calls', '/calls?function=nothing', 'Exact calls');
  await person.see('no exact calls', '0 bundles', 'No stored bundle has a complete call');
  await person.check('no exact calls');
}

/** Jobs with results: the list, a number over runs, and functions that a build made slower. */
async function jobs(person) {
  const { page } = person;
  const [top, regression] = BACKTRAIL_JOBS.split(',');
  await person.open('jobs', '/jobs', 'Jobs');
  await person.see('jobs', 'rendering of the shop', 'slower functions of <b>api</b>', 'hourly');
  await image(person, 'hub-jobs');
  await person.check('jobs');
  await person.open('job', top, 'rendering of the shop');
  await person.see('job', 'Past values', 'Last result', 'render', 'parse', 'share >= 0.5');
  await image(person, 'hub-job');
  await image(person, 'hub-job-phone', PHONE);
  await person.check('job');
  await person.open('regression', regression, 'slower functions of <b>api</b>');
  await person.see('regression', 'parse', 'slower');
  await image(person, 'hub-job-regression');
  await person.check('regression');
  await page.getByRole('button', { name: 'Run now' }).click();
  await page.waitForURL(`${BACKTRAIL_HUB}${regression}`);
  await person.open('new job', '/jobs/new', 'New job');
  await image(person, 'hub-job-new');
  await person.check('new job');
}

/** Sites are added, switched off and removed on their page. */
async function sites(person) {
  const { page } = person;
  await person.open('sites', '/settings/sites', 'Sites');
  await person.see('no sites', 'No site is known.');
  await page.getByLabel('Name', { exact: true }).fill('eu-1');
  await page.getByLabel('Address of its hub').fill('https://hub.eu.example.com');
  await page.getByLabel('Token (scope read)').fill('bth_secret');
  await page.getByRole('button', { name: 'Add or change' }).click();
  await page.getByRole('cell', { name: 'eu-1', exact: true }).waitFor();
  await person.see('sites', 'https://hub.eu.example.com', 'asked');
  assert(!(await page.content()).includes('bth_secret'), 'the token of a site is shown');
  await image(person, 'hub-sites');
  await person.check('sites');
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByText('No site is known.').waitFor();
}

/** SQL as each of its views. A program of the test answers. */
async function sql(person) {
  const { page } = person;
  await person.open('sql', `/profiles/sql?${TIMES}`, 'SQL');
  const state = (expected) => until(`the state ${expected}`, () => person.text('#state'), (text) => expected.test(text));
  const click = (name) => page.getByRole('button', { name, exact: true }).click();
  const example = async (name, view, shown) => {
    await click(name);
    assert.equal(await page.getByLabel('Show as').inputValue(), view, name);
    await click('Run');
    await page.locator(shown).waitFor();
    assert.match(page.url(), new RegExp(`as=${view}$`), name);
  };
  await click('Services by processor time');
  await click('Run');
  await state(/^12 rows, from 1 of 1 segments/);
  assert.equal(await page.getByRole('cell', { name: '<b>web</b>', exact: true }).count(), 6);
  assert.doesNotMatch(page.url(), /as=/);
  await person.check('sql, table');
  // Another view of the same answer, without a reload.
  await page.getByLabel('Show as').selectOption('heat');
  await page.locator('#chart figure.cells').waitFor();
  assert.equal(await page.locator('#answer').isVisible(), false);
  await person.see('sql, heat map', '<b>web</b>', 'db');
  await person.check('sql, heat map');
  await example('Seconds of processor time by thread', 'distribution', '#chart figure.distribution');
  await person.see('sql, distribution', 'Median', '550', '1,100');
  await person.check('sql, distribution');
  await example('Flame graph of services', 'graph', '#graph');
  const summary = page.frameLocator('#graph').locator('.summary');
  await until('the graph', () => summary.textContent().catch(() => ''), (text) => text.startsWith('graph: 9'));
  await state(/^answered in/);
  await person.check('sql, flame graph');
  await example('Events by minute', 'series', '#chart figure.lines');
  await person.see('sql, series', '<b>web</b>', 'db', 'Drag over the chart');
  await image(person, 'hub-sql-series');
  await image(person, 'hub-sql-series-phone', PHONE);
  await person.check('sql, series');
  // A drag over the second half of the minute.
  const svg = page.locator('#chart figure.lines svg[role=img]');
  await svg.scrollIntoViewIfNeeded();
  const box = await svg.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 2, box.y + 30, { steps: 4 });
  await page.mouse.up();
  await page.getByText('outside of the chosen time: 6').waitFor();
  assert.equal(await page.getByLabel('From', { exact: true }).inputValue(), `${MINUTE}:30`);
  assert.equal(await page.getByLabel('Until (UTC)').inputValue(), `${NEXT}:00`);
  assert(page.url().includes(`from=${encoded('30')}`), page.url());
  // An answer that does not fit is a sentence.
  const refused = new URL(page.url());
  refused.searchParams.set('as', 'graph');
  person.expected.add(`${refused.origin}/profiles/sql/view${refused.search}`);
  await page.getByLabel('Show as').selectOption('graph');
  await state(/^this answer has no stacks: a flame graph needs/);
  assert.equal(await page.locator('#graph').count(), 0);
  // A query that does not end is canceled.
  await page.locator('textarea[name=sql]').fill('SELECT sleep');
  await click('Run');
  await state(/^running for/);
  await click('Cancel');
  await state(/^canceled$/);
  // The address has the view.
  await page.reload();
  assert.equal(await page.getByLabel('Show as').inputValue(), 'graph');
}

/** Texts of others are no HTML, on the page and in the frame. */
async function hostile(person) {
  const { page } = person;
  await person.open('hostile', `/profiles?${TIMES}&service=${encodeURIComponent('<script>alert(1)</script>')}&view=table`, 'Profiles');
  const frame = await view(person);
  await frame.getByRole('button', { name: '</script><img src=x onerror=alert(2)>', exact: true }).waitFor();
  assert.equal(await frame.locator('img').count(), 0);
  assert.equal(await page.locator('main script, main img').count(), 0);
  await page.getByLabel('Service', { exact: true }).focus();
  await until('values', () => page.locator('#values-service option').count(), (count) => count >= 1);
  const wrong = '/profiles?focus=(%3Cimg%20src%3Dx%20onerror%3Dalert(3)%3E';
  await person.open('problem', wrong, 'Profiles');
  await page.getByRole('alert').waitFor();
  await person.check('problem');
}

const window = await browser();
try {
  const admin = await Person.enter(window, ADMIN);
  for (const part of [overTime, heatMap, distribution, saved, comparison, crashes, exactCalls, jobs, sites, sql, hostile]) {
    const began = Date.now();
    await part(admin, window);
    console.log(`${part.name}: as expected, ${Date.now() - began} ms`);
  }
  await admin.close();
} finally {
  await window.close();
}
