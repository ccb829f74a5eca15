/**
 * Links to crashes: `vscode://backtrail.backtrail/open?j=<base64url of JSON>`.
 *
 * A link is untrusted. It names a crash on a server or in the collector's spool, never a path of
 * this machine or a command. Any deviation from the format is refused.
 */

import * as path from 'node:path';

/** The origin of the collector's spool on the machine where the extension runs. */
export const SPOOL = 'spool';

/** The contents of a link. */
export interface Link {
  /** Scheme, host and port, such as `https://crash.example.com`; or {@link SPOOL}. */
  origin: string;
  /** The name of the crash on that server or in the spool. */
  crash: string;
  /** The position to start at. */
  at?: string;
  /** The digest of the file, in lower case. */
  sha256?: string;
}

/** A link, or the sentence that refuses it. */
export type Parsed = { link: Link } | { problem: string };

/** The default download limit, in MiB. */
export const DOWNLOAD_LIMIT = 2048;

/** The maximum size of the JSON, in bytes. */
const LONGEST = 4096;
const KEYS = new Set(['v', 'origin', 'crash', 'at', 'sha256']);
const CRASH = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
/** The collector's names may contain a plus, for example from `g++`. */
const COLLECTED = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/;
const POSITION = /^[A-Za-z0-9@#.+:_-]{1,64}$/;
const SHA256 = /^[0-9a-fA-F]{64}$/;
const BASE64URL = /^[A-Za-z0-9_-]*$/;

/**
 * Reads the path and query of a link, as VS Code passes them: the query is already decoded once.
 */
export function parseLink(uriPath: string, query: string): Parsed {
  if (uriPath !== '/open') {
    return { problem: 'it does not ask to open anything' };
  }
  if (query.length > 2 * LONGEST) {
    return { problem: 'it is too long' };
  }
  const found = /^j=([^&=]*)={0,2}$/.exec(query);
  const encoded = found?.[1];
  if (encoded === undefined || encoded === '') {
    return { problem: 'it has no single value j' };
  }
  return parseValue(encoded);
}

/** Reads the value `j`. */
function parseValue(encoded: string): Parsed {
  if (!BASE64URL.test(encoded)) {
    return { problem: 'its value is no base64url' };
  }
  const bytes = Buffer.from(encoded, 'base64url');
  if (bytes.length > LONGEST) {
    return { problem: 'it is too long' };
  }
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return { problem: 'its value is no JSON' };
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { problem: 'its value is no JSON object' };
  }
  return parseObject(new Map(Object.entries(value)));
}

function parseObject(value: Map<string, unknown>): Parsed {
  // The version is checked first, because a later version may have other keys.
  if (value.get('v') !== 1) {
    return { problem: 'it is of a version that this extension does not know' };
  }
  for (const key of value.keys()) {
    if (!KEYS.has(key)) {
      return { problem: 'it has a key that this extension does not know' };
    }
  }
  const origin = value.get('origin');
  const problem = origin === SPOOL ? undefined : originProblem(origin);
  if (problem !== undefined || typeof origin !== 'string') {
    return { problem: `its origin ${problem ?? 'is no text'}` };
  }
  const crash = value.get('crash');
  if (typeof crash !== 'string' || !(origin === SPOOL ? COLLECTED : CRASH).test(crash)) {
    return { problem: 'it names no crash' };
  }
  const at = value.get('at');
  if (at !== undefined && (typeof at !== 'string' || !POSITION.test(at))) {
    return { problem: 'its position is none' };
  }
  const sha256 = value.get('sha256');
  if (sha256 !== undefined && (typeof sha256 !== 'string' || !SHA256.test(sha256))) {
    return { problem: 'its digest is no SHA-256' };
  }
  if (origin === SPOOL && sha256 !== undefined) {
    return { problem: 'it has a digest, which only a download can have' };
  }
  return {
    link: {
      origin,
      crash,
      ...(at === undefined ? {} : { at }),
      ...(sha256 === undefined ? {} : { sha256: sha256.toLowerCase() }),
    },
  };
}

/** Returns why a text is not an origin for downloads, or `undefined` if it is one. */
export function originProblem(origin: unknown): string | undefined {
  if (typeof origin !== 'string' || origin.length > 300) {
    return 'is no text';
  }
  // This check precedes the URL parser, which drops tabs and newlines, and reads backslashes as
  // slashes.
  if (!/^[\x21-\x7e]+$/.test(origin) || origin.includes('\\')) {
    return 'has characters that an origin cannot have';
  }
  let url: URL;
  try {
    url = new URL(origin);
  } catch {
    return 'is no address';
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    return 'is neither https nor http';
  }
  // The text must equal the parser's result. It has no user, path, query, default port, upper case,
  // or other notation of a numeric address.
  if (url.origin !== origin) {
    return 'is not written as scheme, host and port alone';
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
    return 'is not https';
  }
  return undefined;
}

/** Returns whether a host, as the URL parser writes it, is this machine. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);
}

/** Returns whether the user's setting allows an origin. Invalid entries are ignored. */
export function isAllowed(origin: string, allowed: unknown): boolean {
  if (!Array.isArray(allowed) || originProblem(origin) !== undefined) {
    return false;
  }
  // An entry may end with a slash.
  return allowed.some((entry) => typeof entry === 'string' && entry.trim().replace(/\/$/, '') === origin);
}

/**
 * Returns the origin of an address in a launch configuration, or `undefined` if it is not an
 * address for downloads.
 */
export function originOf(address: string): string | undefined {
  if (!URL.canParse(address)) {
    return undefined;
  }
  const { origin, username, password } = new URL(address);
  return username === '' && password === '' && originProblem(origin) === undefined ? origin : undefined;
}

/**
 * Returns the adapter's arguments for the settings: allowed origins and download limit. Invalid
 * entries are ignored.
 */
export function allowedArguments(allowed: unknown, limit: unknown): string[] {
  const entries = Array.isArray(allowed) ? allowed.filter((entry): entry is string => typeof entry === 'string') : [];
  const origins = entries.map((entry) => entry.trim().replace(/\/$/, '')).filter((entry) => originProblem(entry) === undefined);
  const named = (origins.length === 0 ? ['none'] : origins).flatMap((origin) => ['--allow-origin', origin]);
  const most = typeof limit === 'number' && limit >= 0 ? Math.floor(limit) : DOWNLOAD_LIMIT;
  return [...named, '--download-limit', String(most)];
}

/**
 * Returns the path of a crash in the spool, or `undefined` without a folder in the setting or with
 * an invalid name.
 */
export function placeInSpool(spool: unknown, crash: string): string | undefined {
  if (typeof spool !== 'string' || !path.isAbsolute(spool) || !COLLECTED.test(crash)) {
    return undefined;
  }
  return path.join(spool, crash);
}

/** Returns the address of a link's crash, unless it is in the spool. */
export function addressOf(link: Link): string {
  return `${link.origin}/crash/${encodeURIComponent(link.crash)}.btz`;
}

/** Returns the file name for a downloaded crash. Files of two origins never share one. */
export function fileNameOf(link: Link): string {
  // Only the port is preceded by `_`, which no part contains except the crash, the last.
  const host = link.origin
    .replace(/^https?:\/\//, '')
    .replace(/:(\d+)$/, '\0$1')
    .replace(/[^A-Za-z0-9.\0-]/g, (sign) => `%${sign.charCodeAt(0).toString(16).padStart(2, '0')}`)
    .replace('\0', '_');
  const scheme = link.origin.startsWith('https:') ? 's' : 'p';
  return `${host}_${scheme}_${link.crash}.btz`;
}
