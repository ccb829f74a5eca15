import assert from 'node:assert/strict';
import test from 'node:test';
import { type CallSummary, Calls, commandOf, describeCall, formatLength } from '../src/calls';
import type { CallColumns, CallData } from '../src/data';
import { joinRange } from '../src/units';

const COLUMNS: CallColumns = {
  index: [1, 2], measured: [3, 1], leftOut: [1, 0],
  slowest: [['t1#30', 5, 9, 40], ['t1#50', 10, 10, 4]], typical: [['t1#20', 0, 4, 10], ['t1#50', 10, 10, 4]],
};
const DATA: CallData = { command: 'backtrail debug a.btz --at ', unit: 'nanoseconds', functions: COLUMNS, stacks: COLUMNS };

test('lengths have their bounds', () => {
  assert.equal(formatLength(['t1#1', 1500, 1500, 1], 'nanoseconds'), '1.50 us');
  assert.equal(formatLength(['t1#1', 0, 400_000, 1], 'nanoseconds'), '< 400.00 us');
  assert.equal(formatLength(['t1#1', 2, 5, 1], 'TSC ticks'), '2–5 TSC ticks');
});

test('a range names its unit once', () => {
  assert.equal(joinRange('1.50 us', '2.00 us'), '1.50–2.00 us');
  assert.equal(joinRange('999.00 ns', '1.00 us'), '999.00 ns–1.00 us');
  assert.equal(joinRange('2 ms', '12 ms'), '2–12 ms');
});

test('a sentence has the number of calls, and of those left out', () => {
  const calls = new Calls(DATA, Int32Array.of(0, 1, 2));
  assert.equal(
    describeCall('work', 'slowest', calls.ofFunction(1), 'nanoseconds'),
    'work: the slowest of 3 calls took 5–9 ns, 40 instructions; 1 call is left out, since its beginning or end is not in the recording',
  );
  assert.equal(describeCall('work', 'typical', calls.ofNode(2), 'nanoseconds'), 'work: the median of 1 call took 10 ns, 4 instructions');
  const none: CallSummary = { measured: 0, leftOut: 2, slowest: null, typical: null };
  assert.equal(
    describeCall('main', 'slowest', none, 'nanoseconds'),
    'main: 2 calls are left out, since their beginning or end is not in the recording',
  );
  assert.equal(describeCall('[off-CPU]', 'slowest', calls.ofNode(7), 'nanoseconds'), '[off-CPU]: no call is known');
});

test('two stacks that are one node have the longer call and no median', () => {
  const calls = new Calls(DATA, Int32Array.of(0, 1, 1));
  assert.deepEqual(calls.ofNode(1), { measured: 4, leftOut: 1, slowest: ['t1#50', 10, 10, 4], typical: null });
});

test('a command has the position as one word', () => {
  assert.equal(commandOf(DATA, ['t1#30', 5, 9, 40]), "backtrail debug a.btz --at 't1#30'");
});
