// The requests and events of our own, as docs/dap.md defines them, for the schema check.
'use strict';

const text = { type: 'string' };
const flag = { type: 'boolean' };
const whole = { type: 'integer' };
const number = { type: 'number' };
const ref = (name) => ({ $ref: `#/definitions/${name}` });
const list = (items) => ({ type: 'array', items });
const oneOf = (...values) => ({ enum: values });

/** All properties without `?` are required, and no others are allowed. */
function object(properties) {
  const named = Object.entries(properties).map(([name, schema]) => [name.replace('?', ''), schema]);
  return {
    type: 'object',
    properties: Object.fromEntries(named),
    required: Object.keys(properties).filter((name) => !name.endsWith('?')),
    additionalProperties: false,
  };
}

const unit = oneOf('ns', 'ticks', 'instructions');

const definitions = {
  Nothing: object({}),
  Moment: object({ at: number, 'uncertainty?': number, unit: oneOf('ns', 'ticks'), text }),
  Length: object({ least: number, most: number, unit, text }),
  Trace: object({
    id: { type: 'string', minLength: 1 },
    name: text,
    'program?': text,
    'crash?': object({ threadId: whole, signal: text, text }),
    notes: list(text),
    isPartial: flag,
    hasValues: flag,
  }),
  Where: object({
    threadId: whole,
    position: { type: 'string', pattern: '^t\\d+#-?\\d+$' },
    'time?': ref('Moment'),
    'cpu?': whole,
    'call?': text,
    'function?': text,
    'file?': text,
    'line?': whole,
    'end?': text,
  }),
  Call: object({
    call: text,
    function: text,
    'file?': text,
    'line?': whole,
    'library?': text,
    position: text,
    instructions: whole,
    'time?': ref('Moment'),
    'duration?': ref('Length'),
    'entered?': text,
    'left?': text,
    children: whole,
    number: whole,
    around: flag,
  }),
  Calls: object({ calls: { ...list(ref('Call')), maxItems: 500 }, total: whole }),
  CallPath: object({ path: list(ref('Call')) }),
  Timeline: object({
    unit,
    begin: number,
    end: number,
    from: number,
    to: number,
    'here?': object({ threadId: whole, at: number }),
    'crash?': object({ threadId: whole, at: number, signal: text }),
    threads: list(
      object({
        threadId: whole,
        name: text,
        current: flag,
        crashed: flag,
        timed: flag,
        states: list(
          object({ state: oneOf('ran', 'offCpu', 'both', 'unknown', 'gap'), from: number, to: number, 'cause?': text }),
        ),
        calls: list(
          object({
            level: whole,
            from: number,
            to: number,
            function: text,
            'call?': text,
            position: text,
            several: flag,
          }),
        ),
        levels: whole,
      }),
    ),
    libraries: { type: 'object', additionalProperties: text },
  }),
  Latency: object({
    function: text,
    unit,
    noTime: flag,
    calls: whole,
    measured: whole,
    unmeasured: list(object({ reason: text, calls: whole })),
    'spread?': list(object({ name: text, length: ref('Length') })),
    histogram: list(object({ from: number, to: number, calls: whole, uncertain: whole })),
    rows: list(
      object({
        'call?': text,
        position: text,
        threadId: whole,
        length: ref('Length'),
        instructions: whole,
        'time?': ref('Moment'),
        'caller?': text,
      }),
    ),
  }),
  Comparison: object({ text, comparison: { type: 'object' } }),
  Bookmarks: object({ bookmarks: list(object({ name: text, position: text })) }),
  Functions: object({ functions: list(object({ name: text, 'file?': text, 'line?': whole })), more: flag }),
  Coverage: object({ lines: list(object({ line: whole, executions: whole })) }),
  MyCode: object({ enabled: flag }),
  Locals: object({
    'path?': text,
    'firstLine?': whole,
    'line?': whole,
    variables: list(object({ name: text, value: text, unknown: flag })),
  }),
};

module.exports = {
  schema: { $schema: 'http://json-schema.org/draft-07/schema#', definitions },
  requests: {
    'backtrail/reverseStepIn': 'Nothing',
    'backtrail/reverseNext': 'Nothing',
    'backtrail/reverseStepOut': 'Nothing',
    'backtrail/goto': 'Nothing',
    'backtrail/back': 'Nothing',
    'backtrail/forward': 'Nothing',
    'backtrail/runToCall': 'Nothing',
    'backtrail/lastWrite': 'Nothing',
    'backtrail/trace': 'Trace',
    'backtrail/where': 'Where',
    'backtrail/calls': 'Calls',
    'backtrail/callPath': 'CallPath',
    'backtrail/timeline': 'Timeline',
    'backtrail/latency': 'Latency',
    'backtrail/compare': 'Comparison',
    'backtrail/bookmarks': 'Bookmarks',
    'backtrail/functions': 'Functions',
    'backtrail/coverage': 'Coverage',
    'backtrail/justMyCode': 'MyCode',
    'backtrail/locals': 'Locals',
  },
  events: {
    'backtrail/moved': 'Where',
    'backtrail/bookmarksChanged': 'Bookmarks',
    'backtrail/justMyCodeChanged': 'MyCode',
  },
};
