// Threads, stacks, scopes and variables.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { clients } = require('./lib/client');
const { file, line } = require('./lib/source');

describe('threads', () => {
  const client = clients(() => ({ bundle: process.env.THREADS }));
  const { it } = client;

  it('are all listed, with the stop in the one that crashed', async () => {
    const { threads } = await client().ask('threads');
    assert.equal(threads.length, 3);
    assert.equal(new Set(threads.map(({ id }) => id)).size, 3);
    assert.ok(threads.every(({ id, name }) => /^thread_crash( ✕)? \(/u.test(name) && name.includes(id)), JSON.stringify(threads));
    const crashed = threads.filter(({ name }) => name.includes(' ✕ '));
    assert.deepEqual(
      crashed.map(({ id }) => id),
      [client().threadId],
    );
  });

  it('have one stack each', async () => {
    const { threads } = await client().ask('threads');
    const of = async ({ id }) => {
      const { stackFrames } = await client().ask('stackTrace', { threadId: id });
      return stackFrames.map(({ name }) => name.split(' ')[0].replace(/\(.*/, ''));
    };
    const stacks = await Promise.all(threads.map(of));
    const has = (...names) => stacks.filter((stack) => names.every((name) => stack.includes(name))).length;
    assert.equal(has('main'), 1, JSON.stringify(stacks));
    assert.equal(has('spin'), 1, JSON.stringify(stacks));
    assert.equal(has('store', 'crash'), 1, JSON.stringify(stacks));
    const own = await of({ id: client().threadId });
    assert.equal(own[0], 'store');
  });

  it('move alone, and the others are shown at their time', async () => {
    const { threads } = await client().ask('threads');
    const other = threads.find(({ id }) => id !== client().threadId).id;
    const stop = await client().move('stepBack', { threadId: other, granularity: 'instruction' });
    assert.equal(stop.threadId, other);
    assert.equal((await client().ask('backtrail/where')).threadId, other);
  });

  it('that do not exist have no stack', async () => {
    assert.ok(await client().refused('stackTrace', { threadId: 1 }));
    assert.ok(await client().refused('continue', { threadId: 1 }));
  });
});

describe('a stack', () => {
  const client = clients(() => ({ bundle: process.env.LEDGER }));
  const { it } = client;

  it('deemphasizes code that a rule of skip names', async () => {
    const hints = async () => {
      const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
      const own = stackFrames.filter(({ name }) => /^(post|main)/.test(name));
      return own.map(({ source }) => source.presentationHint ?? 'normal');
    };
    const repl = (expression) => client().ask('evaluate', { expression, context: 'repl' });
    assert.deepEqual(await hints(), ['normal', 'normal']);
    await repl('skip post');
    assert.deepEqual(await hints(), ['deemphasize', 'normal']);
    // Short calls are visible in a short part only, and how long they take depends on the machine.
    const { from, to } = await client().ask('backtrail/timeline');
    let libraries = {};
    for (let length = to - from; length >= 1 && libraries.post === undefined; length = Math.floor(length / 10)) {
      ({ libraries } = await client().ask('backtrail/timeline', { from: to - length, to }));
    }
    assert.equal(libraries.post, 'skipped code');
    assert.equal(libraries.main, undefined);
    const main = async () => (await client().ask('backtrail/callPath')).path.find((call) => call.function === 'main');
    assert.equal((await main()).library, undefined);
    await repl('skip -gfi *.c');
    assert.deepEqual(await hints(), ['deemphasize', 'deemphasize']);
    assert.equal((await main()).library, 'skipped code');
    await repl('skip delete');
    assert.deepEqual(await hints(), ['normal', 'normal']);
  });

  it('begins with the innermost frame', async () => {
    const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
    assert.match(stackFrames[0].name, /^post/);
    assert.match(stackFrames[1].name, /^end_of_day/);
    assert.match(stackFrames[2].name, /^main/);
  });

  it('has the position of each frame', async () => {
    const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
    const [inner, caller] = stackFrames;
    assert.equal(inner.source.name, 'ledger.c');
    assert.equal(inner.source.path, file('ledger.c'));
    assert.equal(caller.line, line('ledger.c', 'post(accounts[orders[i].from], -orders[i].amount);'));
    for (const frame of stackFrames) {
      assert.match(frame.instructionPointerReference, /^0x[0-9a-f]+$/);
      // Without line information, both are 0.
      assert.ok(frame.line > 0 ? frame.column >= 0 : frame.line === 0 && frame.column === 0, JSON.stringify(frame));
    }
    const { modules } = await client().ask('modules', { startModule: 0 });
    const ids = new Set(modules.map(({ id }) => id));
    assert.ok(stackFrames.some(({ moduleId }) => moduleId !== undefined));
    assert.ok(stackFrames.every(({ moduleId }) => moduleId === undefined || ids.has(moduleId)));
  });

  it('has frames that are invalid after a move', async () => {
    const frame = await client().frame();
    const { scopes } = await client().ask('scopes', { frameId: frame.id });
    await client().move('stepBack', { threadId: client().threadId });
    // A new frame is never shown in place of the old frame.
    assert.ok(await client().refused('scopes', { frameId: frame.id }));
    assert.ok(await client().refused('variables', { variablesReference: scopes[0].variablesReference }));
    const now = await client().frame();
    assert.match(now.name, /^end_of_day/);
    await client().ask('scopes', { frameId: now.id });
  });

  it('has no scopes for an unknown frame', async () => {
    assert.ok(await client().refused('scopes', { frameId: 123456789 }));
    assert.ok(await client().refused('variables', { variablesReference: 123456789 }));
  });
});

// A complete stack, a stack with an unknown end, and the stack of an endless recursion.
for (const [name, size] of [
  ['LEDGER', 2],
  ['SMASH', 1],
  ['SMASH', 2],
  ['DEEP', 50],
]) {
  describe(`the stack of ${name}`, () => {
    const client = clients(() => ({ bundle: process.env[name] }));
    const { it } = client;

    it(`is the same in pages of ${size} as in one request`, async () => {
      const { threadId } = client();
      const paged = [];
      let total = Infinity;
      for (let startFrame = 0; startFrame < total; startFrame += size) {
        const page = await client().ask('stackTrace', { threadId, startFrame, levels: size });
        assert.ok(page.stackFrames.length <= size);
        assert.ok(page.stackFrames.length > 0, `frames from ${startFrame} on, of ${page.totalFrames}`);
        // The reported number of frames may grow from page to page, but is never too small.
        assert.ok(page.totalFrames >= startFrame + page.stackFrames.length);
        total = page.totalFrames;
        paged.push(...page.stackFrames);
      }
      assert.equal(new Set(paged.map(({ id }) => id)).size, paged.length);
      assert.equal(paged.length, total);
      const all = await client().ask('stackTrace', { threadId });
      assert.deepEqual(paged.slice(0, all.stackFrames.length), all.stackFrames);
      const zero = await client().ask('stackTrace', { threadId, startFrame: 1, levels: 0 });
      assert.deepEqual(zero.stackFrames.slice(0, 5), paged.slice(1, 6));
      const beyond = await client().ask('stackTrace', { threadId, startFrame: total, levels: 5 });
      assert.deepEqual(beyond.stackFrames, []);
      if (name === 'SMASH') {
        assert.match(paged.at(-1).name, /history begins/);
        assert.equal(paged.at(-1).presentationHint, 'label');
      }
    });
  });
}

describe('variables', () => {
  const client = clients(() => ({ bundle: process.env.VALUES }));
  const { it } = client;

  async function scope(name) {
    const frame = await client().frame();
    const { scopes } = await client().ask('scopes', { frameId: frame.id });
    const found = scopes.find((one) => one.name === name);
    assert.ok(found, `${name} is one of ${scopes.map((one) => one.name)}`);
    return found;
  }

  async function children(variablesReference, more) {
    const { variables } = await client().ask('variables', { variablesReference, ...more });
    return variables;
  }

  it('are in scopes', async () => {
    const frame = await client().frame();
    const { scopes } = await client().ask('scopes', { frameId: frame.id });
    const names = scopes.map(({ name }) => name);
    assert.ok(names.includes('Locals') && names.includes('Registers') && names.includes('Trace'), `${names}`);
    assert.ok(scopes.every(({ variablesReference }) => variablesReference > 0));
    assert.equal(scopes.find(({ name }) => name === 'Locals').presentationHint, 'locals');
    assert.equal(scopes.find(({ name }) => name === 'Registers').presentationHint, 'registers');
  });

  it('of a function have values and types', async () => {
    const values = new Map((await children((await scope('Locals')).variablesReference)).map((one) => [one.name, one]));
    assert.equal(values.get('inner').value, '3');
    assert.equal(values.get('inner').type, 'int');
    assert.equal(values.get('letter').value, "120 'x'");
    assert.equal(values.get('hole').value, '0x0');
    assert.match(values.get('text').value, /^"stack/);
    assert.equal(values.get('inner').variablesReference, 0);
  });

  it('expand level by level', async () => {
    const frame = await client().frame();
    const list = await client().ask('evaluate', { expression: 'list', frameId: frame.id, context: 'watch' });
    assert.ok(list.variablesReference > 0);
    let node = await children(list.variablesReference);
    // A pointer expands to its target, either directly or by one level.
    if (node.length === 1) {
      node = await children(node[0].variablesReference);
    }
    const at = node.find(({ name }) => name === 'at');
    assert.ok(at && at.variablesReference > 0, JSON.stringify(node));
    const corners = await children(at.variablesReference);
    assert.deepEqual(
      corners.map(({ name }) => name),
      ['[0]', '[1]'],
    );
    const corner = await children(corners[1].variablesReference);
    assert.deepEqual(
      corner.map(({ name }) => name),
      ['x', 'y'],
    );
  });

  it('with many elements come in pages', async () => {
    const frame = await client().frame();
    const zeros = await client().ask('evaluate', { expression: 'zeros', frameId: frame.id, context: 'watch' });
    assert.equal(zeros.indexedVariables, 300);
    const page = await children(zeros.variablesReference, { filter: 'indexed', start: 200, count: 50 });
    assert.deepEqual(
      page.map(({ name, value }) => [name, value]),
      Array.from({ length: 50 }, (_, at) => [`[${200 + at}]`, '0']),
    );
    assert.deepEqual(await children(zeros.variablesReference, { filter: 'named' }), []);
    assert.deepEqual(await children(zeros.variablesReference, { filter: 'indexed', start: 300, count: 50 }), []);
    const last = await children(zeros.variablesReference, { filter: 'indexed', start: 299, count: 50 });
    assert.equal(last.length, 1);
  });

  it('can be evaluated by their own names', async () => {
    const frame = await client().frame();
    const locals = await children((await scope('Locals')).variablesReference);
    let tried = 0;
    for (const { name, value, evaluateName } of locals) {
      if (evaluateName) {
        tried += 1;
        const again = await client().ask('evaluate', { expression: evaluateName, frameId: frame.id, context: 'watch' });
        // As in GDB, only the result for a pointer alone includes its type.
        assert.equal(again.result.replace(/^\(.*\*.*\) (?=0x)/, ''), value, name);
      }
    }
    assert.ok(tried > 5, `${tried} have one`);
  });

  it('can be shown in hexadecimal', async () => {
    assert.equal(client().capabilities.supportsValueFormattingOptions, true);
    const { variablesReference } = await scope('Locals');
    const octet = (await children(variablesReference, { format: { hex: true } })).find(({ name }) => name === 'octet');
    assert.match(octet.value, /^0xc8/);
  });

  it('of registers have the values of the crash', async () => {
    const registers = await children((await scope('Registers')).variablesReference);
    const frame = await client().frame();
    const rip = registers.find(({ name }) => name === 'rip');
    assert.ok(rip.value.startsWith(frame.instructionPointerReference), rip.value);
    assert.ok(registers.some(({ name }) => name === 'rsp'));
  });

  it('of the trace have the position', async () => {
    const trace = await children((await scope('Trace')).variablesReference);
    const { position } = await client().ask('backtrail/where');
    assert.ok(
      trace.some(({ value }) => value.includes(position)),
      JSON.stringify(trace),
    );
  });

  it('are unknown without a source for them', async () => {
    await client().move('backtrail/goto', { to: 'start' });
    await client().move('backtrail/runToCall', { function: 'fall', direction: 'forward' });
    await client().move('next', { threadId: client().threadId });
    const locals = await children((await scope('Locals')).variablesReference);
    const hole = locals.find(({ name }) => name === 'hole');
    assert.match(hole.value, /unknown/);
    assert.equal(hole.variablesReference, 0);
  });
});

describe('sources', () => {
  const client = clients(() => ({ bundle: process.env.LEDGER }));
  const { it } = client;

  it('are listed', async () => {
    const { sources } = await client().ask('loadedSources', {});
    assert.ok(sources.some((source) => source.path === file('ledger.c')));
  });

  it('are read', async () => {
    const frame = await client().frame();
    const { content } = await client().ask('source', {
      source: frame.source,
      sourceReference: frame.source.sourceReference ?? 0,
    });
    assert.equal(content, fs.readFileSync(file('ledger.c'), 'utf8'));
  });

  it('do not include other files of this machine', async () => {
    assert.ok(await client().refused('source', { source: { path: '/etc/passwd' }, sourceReference: 0 }));
    assert.ok(await client().refused('source', { sourceReference: 123456789 }));
  });

  it('are listed by module', async () => {
    const { modules, totalModules } = await client().ask('modules', { startModule: 0 });
    assert.equal(totalModules, modules.length);
    const program = modules.find(({ name }) => name.includes('ledger'));
    assert.ok(program.path.endsWith('/ledger'), JSON.stringify(program));
    assert.ok(program.symbolStatus, JSON.stringify(program));
    const page = await client().ask('modules', { startModule: 1, moduleCount: 1 });
    assert.deepEqual(page.modules, modules.slice(1, 2));
    assert.equal(page.totalModules, totalModules);
  });
});
