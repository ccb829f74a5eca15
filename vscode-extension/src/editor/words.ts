/** Words of a source text that name a variable, for inline values. */

/** A name with its position. */
export interface Found {
  line: number;
  from: number;
  to: number;
  name: string;
}

/**
 * Returns the first occurrence of each name on each line, from line `first` to `last`, both from 0.
 *
 * Strings, comments to the end of a line, and members, as in `a.name`, are skipped.
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

/** Replaces strings, characters and comments by spaces, so that columns are unchanged. */
function withoutText(line: string): string {
  const blank = (text: string) => ' '.repeat(text.length);
  return line.replace(/"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.){1,8}'|\/\/.*|\/\*.*?(?:\*\/|$)/g, blank).replace(/^\s*\*.*$/, (text) => (/^\s*\*\s/.test(text) ? blank(text) : text));
}
