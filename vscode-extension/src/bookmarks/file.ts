/**
 * The bookmarks file of a workspace, `.backtrail/bookmarks.json`: reads it, and changes one trace's
 * part.
 */

/** A position with a name. */
export interface Mark {
  name: string;
  position: string;
  /** The user's note. */
  note?: string;
}

/** The contents of the file. */
export interface MarksFile {
  version: 1;
  traces: { [id: string]: { name?: string; bookmarks: Mark[] } };
}

/** The maximum size of the file. */
export const LONGEST_FILE = 4 * 2 ** 20;
const MOST_MARKS = 10_000;

/** Reads the file. Other people may have written it, so any error is refused with one sentence. */
export function parseMarks(text: string): { file: MarksFile } | { problem: string } {
  if (text.trim() === '') {
    return { file: emptyMarks() };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { problem: `it is no JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
  if (!isObject(value) || value['version'] !== 1) {
    return { problem: 'its version is not 1' };
  }
  const { traces } = value;
  if (!isObject(traces)) {
    return { problem: 'it has no object "traces"' };
  }
  const file = emptyMarks();
  for (const [id, trace] of Object.entries(traces)) {
    if (!isObject(trace) || !Array.isArray(trace['bookmarks'])) {
      return { problem: `trace ${id} has no list "bookmarks"` };
    }
    const marks: Mark[] = [];
    for (const entry of (trace['bookmarks'] as unknown[]).slice(0, MOST_MARKS)) {
      const mark = asMark(entry);
      if (mark === undefined) {
        return { problem: `a bookmark of trace ${id} has no "name" or no "position"` };
      }
      marks.push(mark);
    }
    const name = typeof trace['name'] === 'string' ? { name: trace['name'] } : {};
    Object.defineProperty(file.traces, id, { value: { ...name, bookmarks: marks }, enumerable: true, configurable: true, writable: true });
  }
  return { file };
}

/** A file without bookmarks. */
export function emptyMarks(): MarksFile {
  return { version: 1, traces: {} };
}

/** The bookmarks of one trace. */
export function marksOf(file: MarksFile, id: string): Mark[] {
  return Object.hasOwn(file.traces, id) ? (file.traces[id]?.bookmarks ?? []) : [];
}

/** Returns the file with other bookmarks for one trace. A trace without bookmarks is omitted. */
export function withMarks(file: MarksFile, id: string, name: string, marks: readonly Mark[]): MarksFile {
  const others = Object.entries(file.traces).filter(([other]) => other !== id);
  const mine: [string, { name: string; bookmarks: Mark[] }][] =
    marks.length === 0 ? [] : [[id, { name, bookmarks: [...marks] }]];
  return { version: 1, traces: Object.fromEntries([...others, ...mine].sort(([a], [b]) => (a < b ? -1 : 1))) };
}

/** Formats the file with one bookmark a line, so that changes are easy to merge. */
export function printMarks(file: MarksFile): string {
  const traces = Object.entries(file.traces).map(([id, { name, bookmarks }]) => {
    const lines = bookmarks.map((mark) => `        ${JSON.stringify(mark)}`).join(',\n');
    const named = name === undefined ? '' : `      "name": ${JSON.stringify(name)},\n`;
    return `    ${JSON.stringify(id)}: {\n${named}      "bookmarks": [\n${lines}\n      ]\n    }`;
  });
  return `{\n  "version": 1,\n  "traces": {${traces.length === 0 ? '' : `\n${traces.join(',\n')}\n  `}}\n}\n`;
}

/**
 * Returns the adapter's current bookmarks, with our notes.
 *
 * Bookmarks of the launch configuration are stored there, and not again in the file.
 */
export function merged(
  ours: readonly Mark[],
  current: readonly { name: string; position: string }[],
  configured: readonly { name: string; position: string }[],
): Mark[] {
  const isConfigured = (mark: { name: string; position: string }) =>
    configured.some(({ name, position }) => name === mark.name && position === mark.position);
  return current
    .filter((mark) => !isConfigured(mark) || ours.some(({ name }) => name === mark.name))
    .map(({ name, position }) => {
      const note = ours.find((mark) => mark.name === name)?.note;
      return { name, position, ...(note === undefined ? {} : { note }) };
    });
}

/** Returns the changes from one list to another: names to remove, and bookmarks to set. */
export function difference(before: readonly Mark[], after: readonly Mark[]): { remove: string[]; set: Mark[] } {
  const remove = before.filter(({ name }) => !after.some((mark) => mark.name === name)).map(({ name }) => name);
  const set = after.filter(
    ({ name, position }) => !before.some((mark) => mark.name === name && mark.position === position),
  );
  return { remove, set };
}

/** Returns why a bookmark cannot have this name, or `undefined` if it can. */
export function nameProblem(name: string, taken: readonly string[]): string | undefined {
  const trimmed = name.trim();
  if (trimmed === '') {
    return 'A bookmark needs a name.';
  }
  if (trimmed.length > 200) {
    return 'The name is too long.';
  }
  if (/\p{C}/u.test(trimmed)) {
    return 'The name has characters that cannot be typed.';
  }
  if (/^(start|end|crash|[@#].*|t\d+#.*|c[#\d].*)$/.test(trimmed)) {
    return 'This already means a position.';
  }
  return taken.includes(trimmed) ? 'There is a bookmark of this name.' : undefined;
}

function isObject(value: unknown): value is { [key: string]: unknown } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function asMark(value: unknown): Mark | undefined {
  if (!isObject(value) || typeof value['name'] !== 'string' || typeof value['position'] !== 'string') {
    return undefined;
  }
  const note = value['note'];
  return { name: value['name'], position: value['position'], ...(typeof note === 'string' && note !== '' ? { note } : {}) };
}
