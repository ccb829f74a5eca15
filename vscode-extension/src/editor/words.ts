/** Which words of a source text name a variable, so that its value can stand beside. */

/** Where a name stands. */
export interface Found {
  line: number;
  from: number;
  to: number;
  name: string;
}

/**
 * The first mention of each name on each line, from line `first` to `last`, both from 0.
 *
 * Text in strings and in comments to the end of a line is passed over; so are members, as in `a.name`.
 */
export function mentions(lines: (line: number) => string, first: number, last: number, names: ReadonlySet<string>): Found[] {
  const found: Found[] = [];
  for (let line = first; line <= last; line += 1) {
    const text = withoutText(lines(line));
    const seen = new Set<string>();
    for (const match of text.matchAll(/[\p{L}_$][\p{L}\p{N}_$]*/gu)) {
      const [name] = match;
      const before = text.slice(0, match.index).trimEnd();
      const isMember = /(\.|->|::)$/.test(before) && !before.endsWith('..');
      const isWord = !/[\p{N}]$/u.test(text.slice(0, match.index));
      if (names.has(name) && !seen.has(name) && !isMember && isWord) {
        seen.add(name);
        found.push({ line, from: match.index, to: match.index + name.length, name });
      }
    }
  }
  return found;
}

/** A line with strings, characters and comments blanked out, every column where it was. */
function withoutText(line: string): string {
  const blank = (text: string) => ' '.repeat(text.length);
  return line.replace(/"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.){1,8}'|\/\/.*|\/\*.*?(?:\*\/|$)/g, blank).replace(/^\s*\*.*$/, (text) => (/^\s*\*\s/.test(text) ? blank(text) : text));
}
