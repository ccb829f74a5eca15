// Other inputs that can be opened: a packed trace, by path or address, and a core alone.
'use strict';

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { Client } = require('./lib/client');
const { scenarios } = require('./lib/scenario');

const packed = fs.readFileSync(process.env.PACKED);
const sha256 = crypto.createHash('sha256').update(packed).digest('hex');

describe('opened', () => {
  let client;
  const it = scenarios(
    () => new Client().start(),
    (begun) => (client = begun),
  );

  it('is a packed trace, the same as the bundle', async () => {
    await client.launch({ bundle: process.env.PACKED });
    const { id } = await client.ask('backtrail/trace');
    const other = await new Client().start();
    await other.launch({ bundle: process.env.LEDGER });
    assert.equal((await other.ask('backtrail/trace')).id, id);
    await other.end();
  });

  it('is a core alone, which has no history', async () => {
    const stop = await client.launch({ bundle: path.join(process.env.LEDGER, 'core') });
    const { threadId } = client;
    assert.ok(stop.reason);
    const { threads } = await client.ask('threads');
    assert.ok(threads.some(({ id }) => id === threadId));
    await client.ask('stackTrace', { threadId });
    for (const command of ['stepBack', 'continue', 'reverseContinue', 'backtrail/runToCall']) {
      const response = await client.request(command, { threadId, function: 'main' });
      assert.ok(response.success || response.body.error.format, command);
    }
    for (const name of ['trace', 'calls', 'callPath', 'timeline', 'functions', 'bookmarks']) {
      const response = await client.request(`backtrail/${name}`, {});
      assert.ok(response.success || response.body.error.format, name);
    }
    assert.equal((await client.ask('threads')).threads.length, threads.length);
  });

  describe('by address', () => {
    let server, origin, asked;
    beforeEach(async () => {
      asked = [];
      server = http.createServer((request, response) => {
        asked.push(request.url);
        const answers = {
          '/ledger.btz': () => response.end(packed),
          '/moved.btz': () => response.writeHead(302, { Location: '/ledger.btz' }).end(),
          '/elsewhere.btz': () => response.writeHead(302, { Location: 'http://example.com/ledger.btz' }).end(),
          '/round.btz': () => response.writeHead(302, { Location: '/round.btz' }).end(),
          '/cut.btz': () => {
            response.writeHead(200, { 'Content-Length': packed.length });
            response.write(packed.subarray(0, packed.length / 2), () => response.destroy());
          },
          '/text.btz': () => response.end('this is no trace'),
        };
        (answers[request.url] ?? (() => response.writeHead(404).end()))();
      });
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
      origin = `http://127.0.0.1:${server.address().port}`;
    });
    afterEach(() => {
      server.closeAllConnections();
      server.close();
    });

    it('is fetched', async () => {
      const stop = await client.launch({ bundle: `${origin}/ledger.btz`, sha256: sha256.toUpperCase() });
      assert.equal(stop.reason, 'exception');
      assert.match((await client.frame()).name, /^post/);
      assert.deepEqual(asked, ['/ledger.btz']);
    });

    it('is fetched from the address that its server redirects to', async () => {
      const stop = await client.launch({ bundle: `${origin}/moved.btz` });
      assert.equal(stop.reason, 'exception');
    });

    it('is refused when the download is wrong', async () => {
      await client.ask('initialize', { adapterID: 'backtrail' });
      const bundle = (name) => `${origin}/${name}.btz`;
      for (const [args, expected] of [
        [{ bundle: bundle('ledger'), sha256: '0'.repeat(64) }, /SHA-256|digest/i],
        [{ bundle: bundle('ledger'), sha256: 'many' }, /many/],
        [{ bundle: bundle('elsewhere') }, /example\.com/],
        [{ bundle: bundle('round') }, /redirect/i],
        [{ bundle: bundle('nowhere') }, /404/],
        [{ bundle: bundle('cut') }, /./],
        [{ bundle: bundle('text') }, /./],
      ]) {
        assert.match(await client.refused('launch', args), expected, JSON.stringify(args));
      }
    });
  });
});
