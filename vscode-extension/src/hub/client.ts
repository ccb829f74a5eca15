/** Requests to the hub with the user's token: who the user is, and the recent crashes. */

import * as http from 'node:http';
import * as https from 'node:https';

/** A hub, and the token for it. */
export interface Account {
  /** Scheme, host and port, such as `https://hub.example.com`. */
  origin: string;
  token: string;
}

/** A crash at the hub. */
export interface HubCrash {
  id: string;
  /** Milliseconds since 1970. */
  time: number;
  title: string;
  signal: string;
  host: string;
  service: string;
  build: string;
}

/** The most crashes that are shown. */
export const MOST_CRASHES = 200;
/** The most bytes of an answer. */
const LONGEST = 4 * 2 ** 20;
/** The time limit for a server that sends nothing. */
const PATIENCE = 20_000;
/** Crockford's base 32 without i, l, o and u. */
const ID = /^[0-9a-hjkmnp-tv-z]{20}$/;
const LONGEST_TEXT = 300;

/** Returns whether a text can be a token: printable ASCII without spaces. */
export function isToken(text: string): boolean {
  return /^[\x21-\x7e]{1,4096}$/.test(text);
}

/** Returns the address of a crash's bundle, which the adapter fetches. */
export function bundleAddress(account: Account, id: string): string {
  return `${account.origin}/crash/${id}.btz`;
}

/** Returns the name of the token at the hub. Fails with one sentence if the hub refuses it. */
export async function nameOf(account: Account): Promise<string> {
  const value = await getJson(account, '/api/v1/whoami');
  const name = isObject(value) ? value['name'] : undefined;
  if (typeof name !== 'string') {
    throw new Error('the server does not answer as a hub does');
  }
  return name.slice(0, LONGEST_TEXT);
}

/** Returns the newest crashes of the hub. Fails with one sentence. */
export async function recentCrashes(account: Account): Promise<HubCrash[]> {
  return parseCrashes(await getJson(account, `/api/v1/crashes?limit=${MOST_CRASHES}`));
}

/** Reads the hub's list. Entries of another form are left out. */
export function parseCrashes(value: unknown): HubCrash[] {
  if (!Array.isArray(value)) {
    throw new Error('the server does not answer as a hub does');
  }
  return value.slice(0, MOST_CRASHES).flatMap((entry: unknown) => {
    if (!isObject(entry)) {
      return [];
    }
    const { id, time } = entry;
    if (typeof id !== 'string' || !ID.test(id) || typeof time !== 'number' || !Number.isFinite(time)) {
      return [];
    }
    const text = (key: string) => {
      const found = entry[key];
      return typeof found === 'string' ? found.slice(0, LONGEST_TEXT) : '';
    };
    return [
      {
        id,
        time: time / 1000,
        title: text('title'),
        signal: text('signal_name'),
        host: text('host'),
        service: text('service'),
        build: text('build'),
      },
    ];
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Fetches JSON. The token goes to the hub's origin alone, because no redirect is followed. */
function getJson(account: Account, path: string): Promise<unknown> {
  const url = new URL(path, account.origin);
  const client = url.protocol === 'https:' ? https : http;
  const headers = {
    accept: 'application/json',
    'accept-encoding': 'identity',
    authorization: `Bearer ${account.token}`,
  };
  return new Promise((resolve, reject) => {
    const request = client.get(url, { headers, timeout: PATIENCE }, (response) => {
      const status = response.statusCode ?? 0;
      if (status !== 200) {
        response.destroy();
        reject(new Error(refusal(status)));
        return;
      }
      const pieces: Buffer[] = [];
      let bytes = 0;
      response.on('data', (piece: Buffer) => {
        bytes += piece.length;
        if (bytes > LONGEST) {
          request.destroy(new Error('the answer is too long'));
          return;
        }
        pieces.push(piece);
      });
      response.on('error', reject);
      response.on('end', () => {
        try {
          resolve(JSON.parse(Buffer.concat(pieces).toString('utf8')));
        } catch {
          reject(new Error('the server does not answer as a hub does'));
        }
      });
    });
    request.on('timeout', () => request.destroy(new Error('the server does not answer')));
    request.on('error', reject);
  });
}

function refusal(status: number): string {
  return status === 401 || status === 403 ? `the hub does not accept the token (${status})` : `the server answers ${status}`;
}
