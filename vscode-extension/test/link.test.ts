/** Links: valid ones, and all kinds of invalid ones. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SPOOL, addressOf, allowedArguments, fileNameOf, isAllowed, originOf, originProblem, parseLink, placeInSpool } from '../src/link/parse';

const GOOD = { v: 1, origin: 'https://crash.example.com', crash: 'server-1', at: 't12#345', sha256: 'A'.repeat(64) };

function query(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return `j=${Buffer.from(text, 'utf8').toString('base64url')}`;
}

function refused(value: unknown): string {
  const parsed = parseLink('/open', query(value));
  assert.ok('problem' in parsed, `taken: ${JSON.stringify(value)}`);
  return parsed.problem;
}

test('a whole link is read', () => {
  assert.deepEqual(parseLink('/open', query(GOOD)), {
    link: { origin: 'https://crash.example.com', crash: 'server-1', at: 't12#345', sha256: 'a'.repeat(64) },
  });
});

test('position and digest may be missing', () => {
  const { at: _at, sha256: _sha256, ...rest } = GOOD;
  assert.deepEqual(parseLink('/open', query(rest)), { link: { origin: rest.origin, crash: rest.crash } });
});

test('only the path /open opens', () => {
  for (const path of ['', '/', '/open/', '//open', '/Open', '/open/../x', '/opened']) {
    assert.ok('problem' in parseLink(path, query(GOOD)), path);
  }
});

test('the query has exactly one value', () => {
  const good = query(GOOD);
  for (const other of ['', 'j', 'j=', `${good}&x=1`, `x=1&${good}`, `${good}&${good}`, good.replace('j=', 'J='), `k=${good}`]) {
    assert.ok('problem' in parseLink('/open', other), other.slice(0, 20));
  }
});

test('invalid base64url is refused', () => {
  for (const bad of ['j=!!!!', 'j=a b', 'j=%7B%7D', 'j=e30/', 'j=e3+0', 'j=\u00e9']) {
    assert.ok('problem' in parseLink('/open', bad), bad);
  }
});

test('other JSON than an object is refused', () => {
  for (const bad of ['', '{', 'null', '[]', '1', '"x"', '{"v":1', '\u0000', '{"v":1}x', '\ufeff{"v":1}']) {
    refused(bad);
  }
  const notUtf8 = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]).toString('base64url');
  assert.ok('problem' in parseLink('/open', `j=${notUtf8}`));
});

test('other versions and unknown keys are refused', () => {
  for (const v of [undefined, 0, 2, '1', true, [1]]) {
    assert.match(refused({ ...GOOD, v }), /version/);
  }
  for (const key of ['path', 'bundle', 'command', 'V', '__proto__x', 'constructor', 'args']) {
    assert.match(refused({ ...GOOD, [key]: 'x' }), /key/);
  }
  assert.match(refused('{"v":1,"origin":"https://a.example","crash":"x","__proto__":{"at":"x"}}'), /key/);
});

test('names of crashes are not paths', () => {
  const bad = [
    '', '.', '..', '../x', 'a/b', 'a\\b', '/etc/passwd', '.hidden', '-x', '_x', 'a b', 'a%2fb', 'a?b', 'a#b', 'a\u0000b', 'a\n', 'ä',
    'a\u202eb', '\uff0e\uff0e', 'x'.repeat(129), 7, null, ['a'], { a: 1 }, undefined,
  ];
  for (const crash of bad) {
    refused({ ...GOOD, crash });
  }
  for (const crash of ['x', 'x'.repeat(128), 'A-1_b.c', '0', 'a..b']) {
    assert.ok('link' in parseLink('/open', query({ ...GOOD, crash })), crash);
  }
});

test('positions have only the characters of positions', () => {
  for (const at of ['', ' ', 'a b', '$(x)', 't1#2;x', '../x', 'a/b', 't1\u00002', 't1#2\n', 'é', 'x'.repeat(65), 5, null]) {
    refused({ ...GOOD, at });
  }
  for (const at of ['start', 'crash', 't12#345', '#-120', '@-1.5ms', '@+1:2', 'c17']) {
    assert.ok('link' in parseLink('/open', query({ ...GOOD, at })), at);
  }
});

test('digests have 64 digits', () => {
  for (const sha256 of ['', 'a'.repeat(63), 'a'.repeat(65), 'g'.repeat(64), `${'a'.repeat(64)}\n`, 1, null]) {
    refused({ ...GOOD, sha256 });
  }
});

test('a link that is too long is refused', () => {
  assert.match(refused({ ...GOOD, crash: 'x'.repeat(5000) }), /long/);
  assert.ok('problem' in parseLink('/open', `j=${'A'.repeat(10_000_000)}`));
});

const HOSTILE_ORIGINS: unknown[] = [
  '', 'https', 'https:', 'https://', '//a.example', 'a.example', 'file:///etc', 'javascript:alert(1)', 'data:text/plain,x', 'ftp://a.example',
  'vscode://a.example', 'ws://a.example', 'HTTPS://a.example', 'Https://a.example', 'https://A.example', 'https://a.example/', 'https://a.example/x',
  'https://a.example?x', 'https://a.example#x', 'https://user@a.example', 'https://user:pass@a.example', 'https://@a.example', 'https://:@a.example',
  'https://good.example@evil.example', 'https://a.example:443', 'https://a.example:', 'https://a.example:0443', 'https://a.example:99999',
  'https://a.example\\', 'https:\\\\a.example', 'https:a.example', 'https:/a.example', 'https:///a.example', ' https://a.example', 'https://a.example ',
  'https://a.example\n', 'ht\ttps://a.example', 'https://a\u0000.example', 'https://a\u200b.example', 'https://ex\u00e4mple.org', 'https://\uff41.example',
  'https://a.example\u2044x', 'https://%61.example', 'https://a%2eexample', 'https://a b.example', 'http://a.example', 'http://10.0.0.1', 'http://0.0.0.0',
  'http://localhost.evil.example', 'http://127.0.0.1.evil.example', 'http://127.1', 'http://2130706433', 'http://0x7f.1', 'http://0177.0.0.1',
  'http://[::ffff:127.0.0.1]', 'http://[0:0:0:0:0:0:0:1]', 'http://[::2]', 'null', null, undefined, 1, ['https://a.example'], { toString: 'https://a.example' },
  `https://${'a.'.repeat(200)}example`,
];

test('hostile origins are refused', () => {
  for (const origin of HOSTILE_ORIGINS) {
    assert.notEqual(originProblem(origin), undefined, JSON.stringify(origin));
    refused({ ...GOOD, origin });
    assert.equal(isAllowed(origin as string, [origin]), false);
  }
});

test('plain origins are accepted', () => {
  for (const origin of [
    'https://crash.example.com', 'https://crash.example.com:8443', 'https://10.0.0.1', 'https://[2001:db8::1]', 'https://xn--exmple-cua.org',
    'http://localhost', 'http://localhost:8080', 'http://127.0.0.1:8080', 'http://127.8.8.8', 'http://[::1]:8080',
  ]) {
    assert.equal(originProblem(origin), undefined, origin);
  }
});

test('only origins in the setting are allowed, with scheme and port', () => {
  const allowed = ['https://crash.example.com', 'http://localhost:8080/', 7, null];
  assert.equal(isAllowed('https://crash.example.com', allowed), true);
  assert.equal(isAllowed('http://localhost:8080', allowed), true);
  for (const origin of [
    'https://crash.example.com:8443', 'http://crash.example.com', 'https://evil.example', 'https://a.crash.example.com', 'https://crash.example.com.evil.example',
    'http://localhost', 'http://localhost:8081',
  ]) {
    assert.equal(isAllowed(origin, allowed), false, origin);
  }
  for (const none of [undefined, null, 'https://crash.example.com', { 0: 'https://crash.example.com' }, [], ['*'], ['https://*']]) {
    assert.equal(isAllowed('https://crash.example.com', none), false);
  }
});

test('addresses and files stay in their folders', () => {
  const link = { origin: 'https://crash.example.com:8443', crash: 'a..b' };
  assert.equal(addressOf(link), 'https://crash.example.com:8443/crash/a..b.btz');
  assert.equal(fileNameOf(link), 'crash.example.com_8443_s_a..b.btz');
  assert.notEqual(fileNameOf({ ...link, origin: 'http://localhost' }), fileNameOf({ ...link, origin: 'https://localhost' }));
  for (const origin of ['https://[2001:db8::1]:1', 'http://127.0.0.1']) {
    assert.doesNotMatch(fileNameOf({ origin, crash: 'x' }), /[/\\:[\]]/);
  }
});

test('the link that `backtrail crashes link` prints names a crash of the spool', () => {
  const printed = query('{"crash":"000007-worker-42","origin":"spool","v":1}');
  assert.deepEqual(parseLink('/open', printed), { link: { origin: SPOOL, crash: '000007-worker-42' } });
  const at = { v: 1, origin: SPOOL, crash: '000007-worker-42', at: '#-40' };
  assert.deepEqual(parseLink('/open', query(at)), { link: { origin: SPOOL, crash: '000007-worker-42', at: '#-40' } });
});

test('the spool has one spelling, no digests, and no downloads', () => {
  for (const origin of ['Spool', 'SPOOL', 'spool/', 'spool:', ' spool', 'spool\n', 'spool://x', 'spoo\u006c\u0000', ['spool']]) {
    refused({ v: 1, origin, crash: 'x' });
  }
  assert.match(refused({ ...GOOD, origin: SPOOL }), /digest/);
  assert.notEqual(originProblem(SPOOL), undefined);
  assert.equal(isAllowed(SPOOL, [SPOOL]), false);
});

test('a crash of the spool is directly in its folder', () => {
  assert.equal(placeInSpool('/var/spool/backtrail', '000007-worker-42'), '/var/spool/backtrail/000007-worker-42');
  assert.equal(placeInSpool('/spool/', 'a..b'), '/spool/a..b');
  assert.ok('link' in parseLink('/open', query({ v: 1, origin: SPOOL, crash: '000007-g++-42' })));
  refused({ ...GOOD, crash: '000007-g++-42' });
  for (const spool of ['', 'spool', './x', '~/x', undefined, null, 7, ['/x']]) {
    assert.equal(placeInSpool(spool, 'x'), undefined);
  }
  for (const crash of ['', '.', '..', '../x', 'a/b', '/etc', '.modules', 'a\u0000']) {
    assert.equal(placeInSpool('/spool', crash), undefined);
    refused({ v: 1, origin: SPOOL, crash });
  }
});

test('ten thousand mutated links stay within the format', () => {
  const random = generator(1);
  const bytes = Buffer.from(JSON.stringify(GOOD));
  for (let round = 0; round < 10_000; round += 1) {
    const mutated = Buffer.from(bytes);
    for (let changes = 1 + (random() % 4); changes > 0; changes -= 1) {
      mutated[random() % mutated.length] = random() % 256;
    }
    const parsed = parseLink('/open', `j=${mutated.toString('base64url')}`);
    if ('link' in parsed) {
      const url = new URL(addressOf(parsed.link));
      assert.equal(url.origin, parsed.link.origin);
      assert.match(url.pathname, /^\/crash\/[A-Za-z0-9][A-Za-z0-9._-]*\.btz$/);
      assert.doesNotMatch(fileNameOf(parsed.link), /[/\\\0]/);
      assert.ok(url.username === '' && url.search === '' && url.hash === '');
    }
  }
});

/** A generator with a fixed seed. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state >>> 8;
  };
}

test('files of two origins never share a name', () => {
  const pairs: [string, string, string, string][] = [
    ['https://a.b:1', 'x', 'https://a.b_1', 'x'],
    ['https://a_s_x', 'y', 'https://a', 'x_s_y'],
    ['https://a', '1_s_y', 'https://a:1', 'y'],
    ['https://[::1]:80', 'y', 'https://[::1:80]', 'y'],
    ['http://127.0.0.1', 'y', 'https://127.0.0.1', 'y'],
    ['https://a_p', 'y', 'http://a', 's_y'],
  ];
  for (const [one, crash, other, another] of pairs) {
    assert.notEqual(fileNameOf({ origin: one, crash }), fileNameOf({ origin: other, crash: another }), `${one} ${other}`);
  }
  // Random origins and crashes of a small alphabet.
  const next = generator(7);
  const random = () => (next() % 1000) / 1000;
  const pick = (signs: string[], most: number) =>
    Array.from({ length: 1 + Math.floor(random() * most) }, () => signs[Math.floor(random() * signs.length)] ?? '').join('');
  const known = new Map<string, string>();
  for (let at = 0; at < 100_000; at += 1) {
    const port = random() < 0.5 ? '' : `:${1 + Math.floor(random() * 3)}`;
    const origin = `${random() < 0.5 ? 'http' : 'https'}://${pick(['a', '_', 's', 'p', '1', '.', '-'], 4)}${port}`;
    const crash = `a${pick(['_', 's', 'p', '1', '.', 'a'], 4)}`;
    const name = fileNameOf({ origin, crash });
    const whole = `${origin} ${crash}`;
    assert.equal(known.get(name) ?? whole, whole, name);
    known.set(name, whole);
  }
});

test('a launch configuration names only servers that are allowed', () => {
  assert.equal(originOf('https://Crash.example.com:443/a/b.btz?c#d'), 'https://crash.example.com');
  assert.equal(originOf('http://127.0.0.1:8080/x.btz'), 'http://127.0.0.1:8080');
  for (const wrong of ['http://crash.example.com/x.btz', 'https://me@crash.example.com/x', 'ftp://a/b', 'https:', '']) {
    assert.equal(originOf(wrong), undefined, wrong);
  }
  assert.equal(isAllowed(originOf('https://crash.example.com.evil.example/x') ?? '', ['https://crash.example.com']), false);
});

test('the adapter gets the allowed origins and the limit', () => {
  const none = ['--allow-origin', 'none', '--download-limit', '2048'];
  for (const wrong of [undefined, null, [], 'https://a.example', [7, 'none', '*', 'http://a.example', 'https://a.example/x', '--listen']]) {
    assert.deepEqual(allowedArguments(wrong, undefined), none);
  }
  assert.deepEqual(allowedArguments([' https://a.example/ ', 'http://localhost:1'], 5.5), [
    '--allow-origin',
    'https://a.example',
    '--allow-origin',
    'http://localhost:1',
    '--download-limit',
    '5',
  ]);
});
