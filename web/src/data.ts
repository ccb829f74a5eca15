/** The data of a page, as `backtrail profile` writes it. */

/** The version that this code reads. */
export const FORMAT = 'backtrail-profile-view/1';

/** One profile, or two that are compared. Equal texts, frames and stacks are stored once. */
export interface ProfileData {
  format: string;
  /** The names of the profiles, the earlier one first. */
  names: string[];
  events: { name: string; unit: string }[];
  /** The event that is shown first. */
  event: number;
  /** Whether the second profile is scaled to the total of the first. */
  normalize: boolean;
  strings: string[];
  /** Indexes of texts. An empty text means unknown. */
  functions: { name: number[]; file: number[]; module: number[] };
  /** Functions with the line that ran in them. Line 0: unknown. */
  frames: { function: number[]; line: number[] };
  /** The stack with number i + 1: its caller's stack and its innermost frame. 0 is empty. */
  stacks: { caller: number[]; frame: number[] };
  /** The samples of each profile. */
  samples: SampleColumns[];
  /** The intervals of time. `null`: no sample has a time, or profiles are compared. */
  time: TimeAxis | null;
  /** The calls of a recording that has all calls. `null`: the profile has samples only. */
  calls: CallData | null;
  /** The address of a hub's crashes with a function, which ends where its name belongs. */
  crashes?: string | null;
  /** The address of a hub's exact calls of a function, which ends where its name belongs. */
  exact_calls?: string | null;
  /** Sentences for the reader. */
  notes: string[];
}

/** Calls that a debugger can open. */
export interface CallData {
  /** The command of a shell, which ends where the position belongs. */
  command: string;
  /** The unit of lengths. */
  unit: string;
  functions: CallColumns;
  stacks: CallColumns;
}

/** Calls of the functions or stacks with these numbers. */
export interface CallColumns {
  index: number[];
  measured: number[];
  leftOut: number[];
  slowest: (CallExample | null)[];
  typical: (CallExample | null)[];
}

/** A call: its position, the bounds of its length, and its instructions. */
export type CallExample = [position: string, least: number, most: number, instructions: number];

/** Samples, added up by event, stack and interval. */
export interface SampleColumns {
  event: number[];
  stack: number[];
  weight: number[];
  /** The interval of time. -1: unknown. */
  interval: number[];
}

/** Intervals of equal length. */
export interface TimeAxis {
  /** Milliseconds since the Unix epoch. */
  start: number;
  /** The length of an interval in nanoseconds. */
  width: number;
  count: number;
}

/** Reads the data. Throws an error with a sentence for the user. */
export function parse(text: string): ProfileData {
  const data = JSON.parse(text) as ProfileData;
  if (data.format !== FORMAT) {
    throw new Error(`The data has the format ${String(data.format)}, and this page reads ${FORMAT}.`);
  }
  data.strings = (data.strings ?? []).map(visible);
  return data;
}

/** Shows characters that could change the text around them, such as reversals of its direction. */
function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu,
    (char) => `⟨U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}
