import assert from 'node:assert/strict';
import test from 'node:test';
import { Worker } from 'node:worker_threads';
import { Searcher, type StartWorker } from '../src/searcher';

/** The second name has no match of patterns that try all ways to divide it. */
const NAMES = ['main', `${'a'.repeat(60)}!`];

/** The time limit of searches that exceed it. */
const LIMIT_MS = 500;

/** The interface of a browser's worker, in a worker of Node.js. */
const SCOPE = `const { parentPort } = require('node:worker_threads');
const postMessage = (message) => parentPort.postMessage(message);
let onmessage;
parentPort.on('message', (data) => onmessage({ data }));
`;

const workers: Worker[] = [];

test.after(() => Promise.all(workers.map((worker) => worker.terminate())));

const start: StartWorker = (code, receive) => {
  const worker = new Worker(SCOPE + code, { eval: true });
  workers.push(worker);
  worker.on('message', receive);
  return { postMessage: (message) => worker.postMessage(message), terminate: () => void worker.terminate() };
};

const functions = NAMES.map((name) => ({ name, file: '', module: '' }));

test('a pattern that takes too long is stopped, and the next one works', async () => {
  for (const pattern of ['^(a+)+$', '^(a|a)*$', '^(a|aa)+$', '^([a-z]+)*$']) {
    const searcher = new Searcher(functions, start, LIMIT_MS);
    const began = Date.now();
    await assert.rejects(searcher.search(pattern), /took longer than/, pattern);
    assert.ok(Date.now() - began < 20 * LIMIT_MS);
    assert.deepEqual(await searcher.search('^main'), [true, false]);
  }
});

test('the last of several searches has an answer, in one worker', async () => {
  const before = workers.length;
  const searcher = new Searcher(functions, start, 60_000);
  const answers = await Promise.all(['m', 'ma', 'aaa'].map((pattern) => searcher.search(pattern)));
  assert.deepEqual(answers, [undefined, undefined, [false, true]]);
  assert.equal(workers.length, before + 1);
});
