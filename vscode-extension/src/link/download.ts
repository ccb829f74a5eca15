/**
 * Downloads one file from one origin, with a size limit and a digest check. No incomplete file
 * remains.
 */

import { createHash, randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import * as fs from 'node:fs/promises';
import * as http from 'node:http';
import * as https from 'node:https';
import * as path from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** The parameters of a download. */
export interface Download {
  address: string;
  /** The target path. An existing file is replaced after the download is complete. */
  file: string;
  /** The maximum number of bytes. */
  limit: number;
  /** The expected digest, in lower case. */
  sha256?: string;
  /** Cancels the download. */
  signal: AbortSignal;
  /** Reports the number of received bytes, and the total if known. */
  progress?: (bytes: number, total: number | undefined) => void;
}

const REDIRECTS = 5;
/** The time limit for a server that sends nothing. */
const PATIENCE = 30_000;

/**
 * Downloads a file. Fails with one sentence for the user, or with an `AbortError` after the signal.
 */
export async function download(wanted: Download): Promise<void> {
  try {
    await fetchTo(wanted);
  } catch (error) {
    // After the signal, the connection may fail first, with another error.
    throw wanted.signal.aborted ? wanted.signal.reason : error;
  }
}

async function fetchTo(wanted: Download): Promise<void> {
  const response = await follow(new URL(wanted.address), wanted.signal);
  const said = Number(response.headers['content-length']);
  const total = Number.isSafeInteger(said) && said >= 0 ? said : undefined;
  if (total !== undefined && total > wanted.limit) {
    response.destroy();
    throw new Error(tooLong(wanted.limit));
  }
  await fs.mkdir(path.dirname(wanted.file), { recursive: true, mode: 0o700 });
  const partial = `${wanted.file}.${randomBytes(6).toString('hex')}.part`;
  const digest = createHash('sha256');
  let bytes = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (bytes > wanted.limit) {
        done(new Error(tooLong(wanted.limit)));
        return;
      }
      digest.update(chunk);
      wanted.progress?.(bytes, total);
      done(null, chunk);
    },
  });
  try {
    const sink = createWriteStream(partial, { flags: 'wx', mode: 0o600 });
    await pipeline(response, counted, sink, { signal: wanted.signal });
    if (total !== undefined && bytes !== total) {
      throw new Error('the server sent less than it had said');
    }
    const found = digest.digest('hex');
    if (wanted.sha256 !== undefined && found !== wanted.sha256) {
      throw new Error(`the file has the digest ${found}, and the link says ${wanted.sha256}`);
    }
    await fs.rename(partial, wanted.file);
  } catch (error) {
    await fs.rm(partial, { force: true });
    throw error;
  }
}

/** Returns the SHA-256 of a file in hexadecimal digits, or `undefined` if it is unreadable. */
export async function digestOf(file: string): Promise<string | undefined> {
  try {
    const handle = await fs.open(file);
    const digest = createHash('sha256');
    for await (const chunk of handle.createReadStream()) {
      digest.update(chunk as Buffer);
    }
    return digest.digest('hex');
  } catch {
    return undefined;
  }
}

function tooLong(limit: number): string {
  return `the file is longer than ${Math.round(limit / 2 ** 20)} MiB (setting backtrail.downloadLimit)`;
}

async function follow(start: URL, signal: AbortSignal): Promise<http.IncomingMessage> {
  let url = start;
  for (let redirects = 0; redirects <= REDIRECTS; redirects += 1) {
    const response = await get(url, signal);
    const status = response.statusCode ?? 0;
    if (status === 200) {
      return response;
    }
    response.destroy();
    const target = response.headers.location;
    if (![301, 302, 303, 307, 308].includes(status) || target === undefined) {
      throw new Error(`the server answers ${status}${status === 404 ? ': there is no such crash' : ''}`);
    }
    const next = URL.canParse(target, url.href) ? new URL(target, url) : undefined;
    if (next === undefined || next.origin !== start.origin || next.username !== '' || next.password !== '') {
      throw new Error('the server redirects to another origin');
    }
    url = next;
  }
  throw new Error('the server redirects in circles');
}

function get(url: URL, signal: AbortSignal): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    const client = url.protocol === 'https:' ? https : http;
    const headers = { accept: 'application/octet-stream', 'accept-encoding': 'identity' };
    const request = client.get(url, { signal, headers, timeout: PATIENCE }, resolve);
    request.on('timeout', () => request.destroy(new Error('the server does not answer')));
    request.on('error', reject);
  });
}
