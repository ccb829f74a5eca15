// Requests about one position: code, memory, expressions, commands, the crash.
'use strict';

const assert = require('node:assert/strict');
const { clients } = require('./lib/client');

describe('at a position', () => {
  const client = clients(() => ({ bundle: process.env.LEDGER }));
  const { it } = client;

  const go = (command, more) => client().move(command, { threadId: client().threadId, ...more });
  const evaluate = (expression, context, more) => client().ask('evaluate', { expression, context, ...more });
  const repl = async (expression) => (await evaluate(expression, 'repl')).result;
  const position = async () => (await client().ask('backtrail/where')).position;

  describe('code', () => {
    it('is disassembled from before an instruction', async () => {
      const pc = (await client().frame()).instructionPointerReference;
      const { instructions } = await client().ask('disassemble', {
        memoryReference: pc,
        instructionOffset: -10,
        instructionCount: 30,
        resolveSymbols: true,
      });
      assert.equal(instructions.length, 30);
      assert.equal(BigInt(instructions[10].address), BigInt(pc));
      for (let at = 1; at < instructions.length; at++) {
        assert.ok(BigInt(instructions[at].address) > BigInt(instructions[at - 1].address));
      }
      assert.match(instructions[10].instruction, /^add/);
      assert.ok(instructions.slice(8, 12).some(({ line }) => line > 0));
      assert.match(instructions[10].instructionBytes ?? '48', /^[0-9a-fA-F]{2}( ?[0-9a-fA-F]{2})*$/);
      // A request without the preceding instructions returns the same.
      const ahead = await client().ask('disassemble', { memoryReference: pc, instructionCount: 5 });
      assert.deepEqual(
        ahead.instructions.map(({ address, instruction }) => [address, instruction]),
        instructions.slice(10, 15).map(({ address, instruction }) => [address, instruction]),
      );
      const bytes = await client().ask('disassemble', {
        memoryReference: `0x${(BigInt(pc) - 32n).toString(16)}`,
        offset: 32,
        instructionCount: 1,
      });
      assert.equal(BigInt(bytes.instructions[0].address), BigInt(pc));
    });

    it('has placeholders outside of code', async () => {
      for (const args of [
        { memoryReference: '0x0', instructionOffset: -5, instructionCount: 10 },
        { memoryReference: '0xffffffffffffffff', instructionOffset: 0, instructionCount: 10 },
        { memoryReference: '0x7fffffffffff', instructionOffset: -200, instructionCount: 400 },
      ]) {
        const response = await client().request('disassemble', args);
        if (response.success) {
          assert.equal(response.body.instructions.length, args.instructionCount, JSON.stringify(args));
        }
      }
    });

    it('continues after the known code', async () => {
      const pc = (await client().frame()).instructionPointerReference;
      const all = await client().ask('disassemble', { memoryReference: pc, instructionCount: 3000 });
      const known = all.instructions.filter(({ instruction }) => instruction !== '(unknown)');
      const addresses = new Set(known.map(({ address }) => address));
      const behind = await client().ask('disassemble', {
        memoryReference: pc,
        instructionOffset: all.instructions.length,
        instructionCount: 10,
      });
      for (const { address } of behind.instructions) {
        assert.ok(!addresses.has(address) && BigInt(address) > BigInt(all.instructions.at(-1).address), address);
      }
    });

    it('of an invalid reference is harmless', async () => {
      for (const memoryReference of ['', 'rip', '0xzz']) {
        const args = { memoryReference, offset: 0, instructionOffset: -50, instructionCount: 100 };
        const response = await client().request('disassemble', args);
        assert.ok(!response.success || Array.isArray(response.body.instructions));
      }
      assert.equal((await client().ask('threads')).threads.length, 1);
    });

    it('of an excessive count is limited', async () => {
      const pc = (await client().frame()).instructionPointerReference;
      const args = { memoryReference: pc, instructionOffset: -(2 ** 40), instructionCount: 2 ** 40 };
      const response = await client().request('disassemble', args);
      assert.ok(!response.success || response.body.instructions.length < 2 ** 24);
    });
  });

  describe('memory', () => {
    it('is read where the core has it', async () => {
      const owner = await repl('print opening[1].owner');
      const [, address] = /(0x[0-9a-f]+)/.exec(owner);
      const { address: at, data, unreadableBytes } = await client().ask('readMemory', {
        memoryReference: address,
        count: 6,
      });
      assert.equal(BigInt(at), BigInt(address));
      assert.equal(Buffer.from(data, 'base64').toString(), 'birch\0');
      assert.ok(!unreadableBytes);
      const shifted = await client().ask('readMemory', { memoryReference: address, offset: 2, count: 3 });
      assert.equal(Buffer.from(shifted.data, 'base64').toString(), 'rch');
      assert.equal(BigInt(shifted.address), BigInt(address) + 2n);
      const before = `0x${(BigInt(address) + 10n).toString(16)}`;
      const back = await client().ask('readMemory', { memoryReference: before, offset: -10, count: 5 });
      assert.equal(Buffer.from(back.data, 'base64').toString(), 'birch');
    });

    it('is reported as unreadable where there is none', async () => {
      for (const memoryReference of ['0x0', '0xffffffffffffffff']) {
        const read = await client().ask('readMemory', { memoryReference, count: 16 });
        assert.equal(read.data ?? '', '');
        assert.equal(read.unreadableBytes, 16);
      }
      const nothing = await client().ask('readMemory', { memoryReference: '0x10', count: 0 });
      assert.equal(nothing.data ?? '', '');
      assert.ok(await client().refused('readMemory', { memoryReference: '', count: 4 }));
      const much = await client().request('readMemory', { memoryReference: '0x0', count: 2 ** 50 });
      assert.ok(!much.success || !(much.body.data || much.body.unreadableBytes > 2 ** 40), JSON.stringify(much));
    });

    it('of the past is not that of the crash', async () => {
      const rsp = (await repl('print/x $rsp')).match(/0x[0-9a-f]+/)[0];
      const now = await client().ask('readMemory', { memoryReference: rsp, count: 8 });
      assert.equal(Buffer.from(now.data, 'base64').length, 8);
      await go('backtrail/goto', { to: 'start' });
      const then = await client().request('readMemory', { memoryReference: rsp, count: 8 });
      assert.ok(!then.success || !then.body.data, JSON.stringify(then));
    });
  });

  describe('expressions', () => {
    it('have values in a frame', async () => {
      const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
      const [post, end] = stackFrames;
      const amount = await evaluate('amount', 'hover', { frameId: post.id });
      assert.equal(amount.result, '-10');
      assert.equal(amount.variablesReference, 0);
      const from = await evaluate('orders[3].from', 'watch', { frameId: end.id });
      assert.equal(from.result, '6');
      assert.equal(from.type, 'int');
      const order = await evaluate('orders[3]', 'watch', { frameId: end.id });
      const { variables } = await client().ask('variables', { variablesReference: order.variablesReference });
      assert.deepEqual(
        variables.map(({ name, value }) => [name, value]),
        [
          ['from', '6'],
          ['to', '0'],
          ['amount', '10'],
          ['active', '1'],
        ],
      );
      assert.match((await evaluate('amount', 'watch', { frameId: end.id })).result, /^<.*amount.*>$/);
    });

    it('without a value report the reason', async () => {
      const { id } = await client().frame();
      for (const expression of ['no_such_name', '1 +', '', '*account', 'post(1)']) {
        // A watch has the reason as its value, and other places have it without a message.
        const { result, variablesReference } = await evaluate(expression, 'watch', { frameId: id });
        assert.match(result, /unknown|^<.+>$/, expression);
        assert.equal(variablesReference, 0);
        const hover = await client().request('evaluate', { expression, context: 'hover', frameId: id });
        if (!hover.success) {
          assert.ok(hover.body.error.format, expression);
          assert.ok(!hover.body.error.showUser, expression);
        }
      }
      await go('backtrail/goto', { to: 'start' });
      const then = await client().request('evaluate', { expression: 'order_count', context: 'watch' });
      assert.match(then.body.result, /unknown|^<.+>$/, JSON.stringify(then));
    });

    it('that are unknown here have a hint in the list of variables', async () => {
      const listed = async () => {
        const { stackFrames } = await client().ask('stackTrace', { threadId: client().threadId });
        const found = new Map();
        for (const { id, name } of stackFrames.filter(({ source }) => source?.name === 'ledger.c')) {
          const { scopes } = await client().ask('scopes', { frameId: id });
          for (const scope of scopes.filter((one) => ['Locals', 'Arguments'].includes(one.name))) {
            const { variables } = await client().ask('variables', { variablesReference: scope.variablesReference });
            for (const variable of variables) {
              found.set(`${name.split(/[ (]/)[0]} ${variable.name}`, { ...variable, id });
            }
          }
        }
        return found;
      };
      const crashed = await listed();
      await go('reverseContinue');
      await go('backtrail/goto', { to: 'crash' });
      await go('stepBack');
      await go('stepBack');
      const before = await listed();
      const hints = [...before].filter(([, { value }]) => value.includes('(at the crash: '));
      assert.ok(hints.length > 0, JSON.stringify([...before]));
      for (const [name, { value, evaluateName, id }] of hints) {
        const [, unknown, hint] = /^(<.*>) \(at the crash: (.*)\)$/.exec(value);
        assert.match(unknown, /unknown/);
        // The hint is the value of the variable at the crash, and a hover has the same.
        assert.equal(crashed.get(name).value.replace(/ {2}\(.*\)$/, ''), hint, name);
        assert.equal((await evaluate(evaluateName, 'hover', { frameId: id })).result, value, name);
      }
    });

    it('are not commands in watches and hovers', async () => {
      const before = await position();
      const { id } = await client().frame();
      for (const context of ['watch', 'hover', 'variables', 'clipboard']) {
        for (const expression of ['reverse-step', 'goto start', 'back']) {
          await client().request('evaluate', { expression, context, frameId: id });
        }
      }
      assert.equal(await position(), before);
    });
  });

  describe('commands', () => {
    it('answer as in the debugger', async () => {
      assert.match(await repl('backtrace'), /#1 .*end_of_day/);
      assert.match(await repl('print orders[3].from'), /6/);
      assert.match(await repl('help'), /reverse-step/);
      assert.match(await repl('count settle'), /settle: \d+ calls/);
      assert.ok(await client().refused('evaluate', { expression: 'makecoffee', context: 'repl' }));
    });

    it('that move send the stop', async () => {
      const stopped = client().event('stopped');
      await evaluate('reverse-next', 'repl');
      assert.equal((await stopped).threadId, client().threadId);
      assert.match((await client().frame()).name, /^end_of_day/);
    });

    it('that do not move send none', async () => {
      const stops = () => client().messages.filter(({ event }) => event === 'stopped').length;
      const before = stops();
      await repl('backtrace');
      await repl('info registers');
      await client().ask('threads');
      assert.equal(stops(), before);
    });

    it('cannot end the program', async () => {
      await client().request('evaluate', { expression: 'quit', context: 'repl' });
      assert.equal((await client().ask('threads')).threads.length, 1);
    });

    it('can set breakpoints', async () => {
      await repl('break settle');
      const stop = await go('reverseContinue');
      assert.match((await client().frame()).name, /^settle/);
      assert.ok(['breakpoint', 'function breakpoint'].includes(stop.reason));
    });
  });

  describe('completions', () => {
    const complete = async (text, column = text.length + 1) => {
      const frameId = (await client().frame()).id;
      const { targets } = await client().ask('completions', { text, column, frameId });
      return targets;
    };

    it('are of commands', async () => {
      const targets = await complete('backt');
      assert.ok(
        targets.some(({ text, label }) => (text ?? label).startsWith('backtrace')),
        JSON.stringify(targets),
      );
    });

    it('are of functions and names', async () => {
      for (const [text, wanted] of [
        ['break sett', 'settle'],
        ['run-to-call 1 of medi', 'median_balance'],
      ]) {
        const targets = await complete(text);
        const texts = targets.map((target) => target.text ?? target.label);
        assert.ok(
          texts.some((found) => found.includes(wanted)),
          `${text}: ${texts}`,
        );
      }
    });

    it('replace what was typed', async () => {
      const typed = 'break sett';
      const target = (await complete(typed)).find(({ label, text }) => (text ?? label).includes('settle'));
      // Columns start at 1, as this client requested.
      const start = target.start - 1;
      const line = typed.slice(0, start) + (target.text ?? target.label) + typed.slice(start + target.length);
      assert.equal(line.trim(), 'break settle');
      const odd = 'break 🧪 sett';
      const behind = (await complete(odd)).find(({ label, text }) => (text ?? label).includes('settle'));
      assert.equal(odd.slice(behind.start - 1, behind.start - 1 + behind.length), 'sett');
    });

    it('of invalid text are empty', async () => {
      assert.deepEqual(await complete('zzzz qqqq'), []);
      for (const column of [0, -1, 1_000_000]) {
        await client().request('completions', { text: 'backt', column });
      }
    });
  });

  describe('the crash', () => {
    it('has an exception', async () => {
      const info = await client().ask('exceptionInfo', { threadId: client().threadId });
      assert.match(info.exceptionId, /SIGSEGV/);
      assert.match(info.description, /0x[0-9a-f]+/);
      assert.ok(info.breakMode);
    });

    it('has no exception at other positions', async () => {
      await go('backtrail/goto', { to: 'start' });
      assert.match(await client().refused('exceptionInfo', { threadId: client().threadId }), /crash/);
    });
  });
});
