/** Source files of a profile on this machine. */

/** Returns whether a file is the one that a profile names, perhaps by a relative path. */
export function isSame(path: string, named: string): boolean {
  const given = named.replaceAll('\\', '/').replace(/^(\.\/)+/, '');
  const found = path.replaceAll('\\', '/');
  return found === given || (!given.startsWith('/') && given !== '' && found.endsWith(`/${given}`));
}

/** Returns the path with the most last parts in common with a name, or `undefined` without any. */
export function closest(paths: readonly string[], named: string): string | undefined {
  const parts = (path: string) => path.replaceAll('\\', '/').split('/').reverse();
  const wanted = parts(named);
  const common = (path: string) => {
    const found = parts(path);
    const end = wanted.findIndex((part, at) => part !== found[at]);
    return end < 0 ? wanted.length : end;
  };
  const best = [...paths].sort((one, other) => common(other) - common(one) || one.length - other.length)[0];
  return best !== undefined && common(best) > 0 ? best : undefined;
}

/** Returns the ends of a path as relative paths, the longest first. */
export function ends(named: string): string[] {
  const parts = named.replaceAll('\\', '/').split('/').filter((part) => part !== '' && part !== '.');
  return parts.includes('..') ? [] : parts.map((_, at) => parts.slice(at).join('/'));
}
