// Mutates links to crashes and checks the extension's result for each: `cargo xtask fuzz links`.
// Reads BACKTRAIL_FUZZ_SECONDS, BACKTRAIL_FUZZ_SEED and BACKTRAIL_FUZZ_CASE, as the harness in
// tests/tests/hostile does.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { SPOOL, addressOf, fileNameOf, originProblem, parseLink, placeInSpool } = await import('../src/link/parse.ts');

/** A case is the path, a line break, and the query. */
function encode(value) {
  return `/open\nj=${Buffer.from(JSON.stringify(value)).toString('base64url')}`;
}

const SEEDS = [
  encode({ v: 1, origin: 'https://crash.example.com', crash: 'server-1', at: 't12#345', sha256: 'a'.repeat(64) }),
  encode({ v: 1, origin: 'http://127.0.0.1:8080', crash: '000001-g' }),
  encode({ v: 1, origin: SPOOL, crash: '000001-g++', at: 't1#-1' }),
  encode({ v: 1, origin: 'https://[2001:db8::1]:444', crash: 'a.b_c-d' }),
];
const PIECES = [
  '..', '/', '\\', '%2e%2e', '%00', '\0', '\n', '@', ':', '#', '?', '&', '=', 'j=', 'https://', 'http://', 'file:///',
  'command:', '](command:', '\u202e', '\ud800', 'xn--', '.', '__proto__', 'constructor', '127.1', '0x7f.1', '[::1]', ':443', 'spool',
];

const corpus = path.join(root, 'tests/fuzz/corpus/links');
let kept = [];
try {
  kept = readdirSync(corpus).sort().map((name) => readFileSync(path.join(corpus, name), 'utf8'));
} catch {
  // There may be none.
}
const seeds = [...SEEDS, ...kept];

/** A generator (splitmix64), so that failures are repeatable. */
function generator(seed) {
  let state = BigInt(seed);
  const mask = (1n << 64n) - 1n;
  return (below) => {
    state = (state + 0x9e3779b97f4a7c15n) & mask;
    let mixed = ((state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
    mixed = ((mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn) & mask;
    return Number((mixed ^ (mixed >> 31n)) % BigInt(below));
  };
}

/** Corrupts a text in one to three places. */
function corrupted(text, below) {
  let out = text;
  for (let round = 0; round <= below(3); round += 1) {
    const at = below(out.length + 1);
    const end = Math.min(out.length, at + below(6));
    const piece = PIECES[below(PIECES.length)];
    switch (below(4)) {
      case 0: out = out.slice(0, at) + piece + out.slice(at); break;
      case 1: out = out.slice(0, at) + out.slice(end); break;
      case 2: out = out.slice(0, at) + String.fromCharCode(below(0x250)) + out.slice(end); break;
      default: out = out.slice(0, at) + out.slice(at, end).repeat(1 + below(40)) + out.slice(end);
    }
  }
  return out;
}

/** Corrupts a link: its text, its JSON, or one of its values. */
function mutated(below) {
  const text = seeds[below(seeds.length)];
  if (below(3) === 0) {
    return corrupted(text, below);
  }
  const [, query = ''] = text.split('\n');
  const json = Buffer.from(query.slice(2), 'base64url').toString('utf8');
  if (below(3) === 0) {
    return `/open\nj=${Buffer.from(corrupted(json, below)).toString('base64url')}`;
  }
  let value;
  try {
    value = JSON.parse(json);
  } catch {
    return corrupted(text, below);
  }
  const keys = Object.keys(value);
  const key = keys[below(keys.length)] ?? 'v';
  const others = [0, 1, -1, 1.5, null, true, [], {}, '', [value[key]]];
  value[key] = below(4) === 0 ? others[below(others.length)] : corrupted(String(value[key]), below);
  return encode(value);
}

/** Checks a case, and returns whether it is a link. */
function check(text) {
  const cut = text.indexOf('\n');
  const parsed = parseLink(cut < 0 ? text : text.slice(0, cut), cut < 0 ? '' : text.slice(cut + 1));
  if ('problem' in parsed) {
    assert.equal(typeof parsed.problem, 'string');
    return false;
  }
  const { link } = parsed;
  assert.equal(cut < 0 ? text : text.slice(0, cut), '/open');
  for (const key of Object.keys(link)) {
    assert.ok(['origin', 'crash', 'at', 'sha256'].includes(key), key);
    assert.match(link[key], /^[\x21-\x7e]+$/);
  }
  if (link.origin === SPOOL) {
    const place = placeInSpool('/var/spool/x', link.crash);
    assert.equal(path.dirname(place), '/var/spool/x');
    assert.equal(path.basename(place), link.crash);
  } else {
    assert.equal(originProblem(link.origin), undefined);
    const address = new URL(addressOf(link));
    assert.equal(address.origin, link.origin);
    assert.ok(address.protocol === 'https:' || ['localhost', '[::1]'].includes(address.hostname) || address.hostname.startsWith('127.'));
    assert.deepEqual([address.username, address.password, address.search, address.hash], ['', '', '', '']);
    assert.match(address.pathname, /^\/crash\/[^/]+\.btz$/);
    assert.match(fileNameOf(link), /^[A-Za-z0-9._%-]+$/);
  }
  const again = parseLink('/open', encode({ v: 1, ...link }).split('\n')[1]);
  assert.deepEqual(again, parsed);
  return true;
}

function run(text) {
  try {
    return check(text);
  } catch (error) {
    const folder = path.join(root, process.env.CARGO_TARGET_DIR ?? 'target', 'tmp/fuzz');
    mkdirSync(folder, { recursive: true });
    const file = path.join(folder, `links-${process.pid}`);
    writeFileSync(file, text);
    console.error(`links panicked (${String(error.message).split('\n')[0]}); the case is ${file}`);
    process.exit(101);
  }
}

if (process.env.BACKTRAIL_FUZZ_CASE) {
  console.log(`links: ${run(readFileSync(process.env.BACKTRAIL_FUZZ_CASE, 'utf8')) ? 'taken' : 'refused'}`);
  process.exit(0);
}
const below = generator(process.env.BACKTRAIL_FUZZ_SEED ?? 1);
const end = performance.now() + 1000 * Number(process.env.BACKTRAIL_FUZZ_SECONDS ?? 3);
let [cases, accepted, worst] = [0, 0, 0];
for (const seed of SEEDS) {
  assert.ok(run(seed), 'a seed is refused as it is');
}
kept.forEach(run);
while (performance.now() < end) {
  const began = performance.now();
  accepted += run(mutated(below)) ? 1 : 0;
  worst = Math.max(worst, performance.now() - began);
  cases += 1;
}
console.log(`links: ${cases} cases, ${accepted} accepted; at most ${worst.toFixed(3)}ms and 0 KiB a case`);
