/** The end of a trace in a few words: the signal, and the function that crashed. */

import { execFile } from 'node:child_process';
import type { TraceFile } from './traces';

/** A trace that takes longer to open, in milliseconds, stays without a summary. */
const PATIENCE = 10_000;
/** The most bytes of an answer. */
const LONGEST = 4 * 2 ** 20;
/** The longest name of a function, in characters. */
const LONGEST_NAME = 120;
/** The most summaries that are remembered. */
const REMEMBERED = 200;

/** Where summaries are kept between sessions of VS Code. */
export interface Memory {
  get(key: string): unknown;
  update(key: string, value: unknown): Thenable<void>;
}

/** Reads and remembers summaries. */
export class Summaries {
  private static readonly KEY = 'backtrail.summaries';

  constructor(private readonly memory: Memory) {}

  /** Returns the summary of a trace; `undefined` if it cannot be read. */
  async of(program: string, trace: TraceFile, stop: AbortSignal): Promise<string | undefined> {
    // A trace that was written again may end in another way.
    const key = `${trace.written} ${trace.path}`;
    const known = this.known().find(([name]) => name === key);
    if (known !== undefined) {
      return known[1];
    }
    const summary = await read(program, trace.path, stop);
    if (summary !== undefined) {
      await this.memory.update(Summaries.KEY, [[key, summary], ...this.known()].slice(0, REMEMBERED));
    }
    return summary;
  }

  private known(): [string, string][] {
    const kept = this.memory.get(Summaries.KEY);
    return Array.isArray(kept) ? kept.filter(isPair) : [];
  }
}

function isPair(value: unknown): value is [string, string] {
  return Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === 'string');
}

/** Asks the debugger for the crash. It does not fetch debug files for that. */
function read(program: string, trace: string, stop: AbortSignal): Promise<string | undefined> {
  return new Promise((resolve) => {
    const given = ['debug', '--batch', '--json', '--execute', 'crash', '--', trace];
    const env = { ...process.env, DEBUGINFOD_URLS: '' };
    const options = { env, timeout: PATIENCE, maxBuffer: LONGEST, signal: stop };
    execFile(program, given, options, (_error, output) => resolve(summaryOf(output)));
  });
}

/** Returns the summary in the debugger's answer to `crash`, such as `SIGSEGV in close_account`. */
export function summaryOf(output: string): string | undefined {
  for (const line of output.split('\n')) {
    const crash = resultOf(line);
    if (crash !== undefined) {
      const signal = typeof crash['signal'] === 'string' ? crash['signal'].split(/[\s(]/)[0] : undefined;
      const name = functionOf(crash['stack']);
      const words = [signal, name === undefined ? undefined : `in ${name}`].filter((word) => word !== undefined && word !== '');
      return signal === undefined || signal === '' ? undefined : words.join(' ');
    }
  }
  return undefined;
}

function resultOf(line: string): Record<string, unknown> | undefined {
  try {
    const answer: unknown = JSON.parse(line);
    const result = isObject(answer) && answer['ok'] === true ? answer['result'] : undefined;
    return isObject(result) && result['kind'] === 'crash' ? result : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the innermost function that is not of a library, otherwise the innermost. */
function functionOf(stack: unknown): string | undefined {
  const frames = isObject(stack) && Array.isArray(stack['frames']) ? stack['frames'].filter(isObject) : [];
  const named = frames.filter((frame) => typeof frame['function'] === 'string');
  const own = named.find((frame) => frame['library'] === undefined) ?? named[0];
  const name = own?.['function'];
  return typeof name === 'string' ? name.slice(0, LONGEST_NAME) : undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
