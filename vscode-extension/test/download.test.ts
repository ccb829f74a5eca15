/** Downloads from a test server that misbehaves. */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import * as http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { digestOf, download } from '../src/link/download';

const CONTENT = Buffer.from('a trace'.repeat(1000));
const SHA256 = createHash('sha256').update(CONTENT).digest('hex');
let folder: string;
let server: http.Server;
let other: http.Server;
let asked: string[] = [];
const originOf = (of: http.Server) => `http://127.0.0.1:${(of.address() as AddressInfo).port}`;

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'backtrail-'));
  server = http.createServer((request, response) => {
    asked.push(request.url ?? '');
    const redirect = (location: string) => response.writeHead(302, { location }).end();
    switch (request.url) {
      case '/good':
        response.end(CONTENT);
        break;
      case '/moved':
        redirect('/good');
        break;
      case '/away':
        redirect(`${originOf(other)}/good`);
        break;
      case '/login':
        redirect(originOf(server).replace('http://', 'http://user:pass@') + '/good');
        break;
      case '/file':
        redirect('file:///etc/passwd');
        break;
      case '/circle':
        redirect('/circle');
        break;
      case '/endless':
        response.writeHead(200);
        response.on('close', () => clearInterval(timer));
        const timer = setInterval(() => response.write(Buffer.alloc(65536)), 1);
        break;
      case '/cut':
        response.writeHead(200, { 'content-length': '100000' });
        response.write('x');
        setTimeout(() => response.destroy(), 20);
        break;
      case '/long':
        response.writeHead(200, { 'content-length': String(2 ** 40) });
        response.write('x');
        break;
      default:
        response.writeHead(404).end();
    }
  });
  other = http.createServer((request, response) => {
    asked.push(`other ${request.url ?? ''}`);
    response.end(CONTENT);
  });
  await Promise.all([server, other].map((one) => new Promise<void>((resolve) => one.listen(0, '127.0.0.1', resolve))));
});

after(async () => {
  for (const one of [server, other]) {
    one.closeAllConnections();
    one.close();
  }
  await rm(folder, { recursive: true });
});

async function fetched(name: string, more: { sha256?: string; limit?: number; signal?: AbortSignal } = {}): Promise<string> {
  asked = [];
  const file = path.join(folder, `${name.slice(1)}.btz`);
  const { signal = new AbortController().signal, limit = 10 * 2 ** 20, ...rest } = more;
  await download({ address: originOf(server) + name, file, limit, signal, ...rest });
  return file;
}

async function nothingLeft(name: string): Promise<void> {
  assert.deepEqual((await readdir(folder)).filter((file) => file.startsWith(name)), []);
}

test('a file is downloaded completely, and its digest is checked', async () => {
  const file = await fetched('/good', { sha256: SHA256 });
  assert.deepEqual(await readFile(file), CONTENT);
  assert.equal(await digestOf(file), SHA256);
  assert.equal(await digestOf(`${file}.no`), undefined);
});

test('a redirect within the origin is followed', async () => {
  assert.deepEqual(await readFile(await fetched('/moved')), CONTENT);
});

test('a redirect to another origin is refused', async () => {
  for (const name of ['/away', '/login', '/file']) {
    await assert.rejects(fetched(name), /another origin/);
    assert.deepEqual(asked, [name]);
    await nothingLeft(name.slice(1));
  }
  await assert.rejects(fetched('/circle'), /circles/);
});

test('a wrong digest leaves no file', async () => {
  await assert.rejects(fetched('/good?x', { sha256: SHA256 }), /404/);
  await assert.rejects(fetched('/moved', { sha256: 'a'.repeat(64) }), /digest/);
  assert.ok((await readdir(folder)).every((file) => !file.endsWith('.part')));
});

test('a download above the limit is stopped', async () => {
  await assert.rejects(fetched('/endless', { limit: 2 ** 20 }), /longer than 1 MiB/);
  await nothingLeft('endless');
  await assert.rejects(fetched('/long'), /longer than 10 MiB/);
  await nothingLeft('long');
});

test('an incomplete, missing or canceled download leaves no file', async () => {
  await assert.rejects(fetched('/cut'));
  await nothingLeft('cut');
  await assert.rejects(fetched('/none'), /404: there is no such crash/);
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 50);
  await assert.rejects(fetched('/endless', { signal: abort.signal, limit: 2 ** 40 }), { name: 'AbortError' });
  await nothingLeft('endless');
});
