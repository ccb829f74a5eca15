import assert from 'node:assert/strict';
import * as http from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { bundleAddress, isToken, nameOf, parseCrashes, recentCrashes } from '../src/hub/client';

const ID = '0123456789abcdefghjk';
const ROW = {
  id: ID,
  time: 1_790_000_000_000_000,
  title: 'SIGSEGV in post',
  signal_name: 'SIGSEGV',
  host: 'web-17',
  service: 'ledger',
  build: '2026.11.3',
  group: 'g1',
  link: `https://hub.example.com/c/${ID}`,
};

/** Answers every request, and returns the origin and what was asked. */
async function serve(answer: (request: http.IncomingMessage, response: http.ServerResponse) => void) {
  const requests: http.IncomingMessage[] = [];
  const server = http.createServer((request, response) => {
    requests.push(request);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, requests, close: () => server.close() };
}

test('crashes are listed with the token', async () => {
  const hub = await serve((_request, response) => response.end(JSON.stringify([ROW])));
  const crashes = await recentCrashes({ origin: hub.origin, token: 'secret' });
  hub.close();
  assert.equal(crashes.length, 1);
  assert.equal(crashes[0]?.time, 1_790_000_000_000);
  assert.equal(hub.requests[0]?.url, '/api/v1/crashes?limit=200');
  assert.equal(hub.requests[0]?.headers.authorization, 'Bearer secret');
});

test('entries of another form are left out', () => {
  const wrong = [null, [], {}, { ...ROW, id: '../../etc' }, { ...ROW, id: ID.toUpperCase() }, { ...ROW, time: 'now' }];
  assert.deepEqual(parseCrashes([...wrong, { ...ROW, title: 7 }]).map(({ id, title }) => [id, title]), [[ID, '']]);
  assert.equal(parseCrashes(Array.from({ length: 1000 }, () => ROW)).length, 200);
  assert.throws(() => parseCrashes({ crashes: [] }), /does not answer as a hub does/);
});

test('refusals, redirects and other pages are one sentence', async () => {
  for (const [status, body, expected] of [
    [401, '', /does not accept the token/],
    [500, '', /answers 500/],
    [302, '', /answers 302/],
    [200, '<html>', /does not answer as a hub does/],
    [200, '{}', /does not answer as a hub does/],
  ] as const) {
    const hub = await serve((_request, response) => {
      response.writeHead(status, { location: 'http://127.0.0.1:1/' });
      response.end(body);
    });
    await assert.rejects(nameOf({ origin: hub.origin, token: 'secret' }), expected);
    hub.close();
    assert.equal(hub.requests.length, 1);
  }
});

test('an endless answer is cut off', async () => {
  const hub = await serve((_request, response) => {
    const write = () => {
      while (!response.destroyed && response.write(Buffer.alloc(1 << 16))) {
        // More follows.
      }
    };
    response.on('drain', write);
    write();
  });
  await assert.rejects(recentCrashes({ origin: hub.origin, token: 'secret' }), /too long/);
  hub.close();
});

test('tokens are printable', () => {
  assert.ok(isToken('bt_secret'));
  for (const wrong of ['', 'a b', 'a\r\nx: y', 'é']) {
    assert.ok(!isToken(wrong), wrong);
  }
  assert.equal(bundleAddress({ origin: 'https://hub.example.com', token: 'x' }, ID), `https://hub.example.com/crash/${ID}.btz`);
});
