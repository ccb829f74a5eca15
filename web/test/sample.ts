/** Profiles from folded stacks, for tests. */

import type { ProfileData, SampleColumns } from '../src/data';
import { Profile, type Selection } from '../src/model';

/** A sample: functions from the outermost on, its weight, and what else is not 0. */
export type Line = [stack: string, weight: number, event?: number, interval?: number];

/** All samples of the first event. */
export const ALL: Selection = { event: 0, range: undefined, normalize: false };

/** Returns a profile, or a comparison of two. A name `f:7` is line 7 of `f`, in the file `f.c`. */
export function profile(...sides: Line[][]): Profile {
  const [functions, frames] = [new Numbers(), new Numbers()];
  const stacks: ProfileData['stacks'] = { caller: [], frame: [] };
  const known = new Map<string, number>([['', 0]]);
  const stackOf = (text: string): number => {
    const found = known.get(text);
    if (found !== undefined) {
      return found;
    }
    const end = text.lastIndexOf(';');
    stacks.caller.push(stackOf(end < 0 ? '' : text.slice(0, end)));
    stacks.frame.push(frames.of(text.slice(end + 1)));
    known.set(text, stacks.frame.length);
    return stacks.frame.length;
  };
  const samples = sides.map((lines): SampleColumns => ({
    event: lines.map(([, , event = 0]) => event),
    stack: lines.map(([stack]) => stackOf(stack)),
    weight: lines.map(([, weight]) => weight),
    interval: lines.map(([, , , interval = -1]) => interval),
  }));
  const parts = frames.names.map((frame) => frame.split(':'));
  const functionOf = parts.map(([name = '']) => functions.of(name));
  const lineOf = parts.map(([, line = '0']) => Number(line));
  const names = functions.names;
  const withLines = new Set(functionOf.filter((_, frame) => lineOf[frame]! > 0));
  const strings = [...names, ...names.map((name) => `${name}.c`), ''];
  const file = names.map((_, fn) => (withLines.has(fn) ? names.length + fn : strings.length - 1));
  return new Profile({
    format: '', names: ['test'], events: [{ name: 'cpu', unit: 'count' }, { name: 'other', unit: 'count' }], event: 0,
    normalize: false, strings, functions: { name: names.map((_, at) => at), file, module: names.map(() => strings.length - 1) },
    frames: { function: functionOf, line: lineOf }, stacks, samples, time: { start: 0, width: 1, count: 10 }, calls: null, notes: [],
  });
}

/** Texts with numbers in the order of their first use. */
class Numbers {
  private readonly numbers = new Map<string, number>();

  get names(): string[] {
    return [...this.numbers.keys()];
  }

  of(name: string): number {
    const number = this.numbers.get(name) ?? this.numbers.size;
    this.numbers.set(name, number);
    return number;
  }
}

/** Returns the number of a function. */
export function fn(of: Profile, name: string): number {
  return of.functions.findIndex((one) => one.name === name);
}
