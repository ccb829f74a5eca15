/** Finding traces on disk: what is one, and which are in a folder. */

import * as fs from 'node:fs/promises';
import * as path from 'node:path';

/** A trace on disk. */
export interface TraceFile {
  path: string;
  /** When it was written, in milliseconds since 1970. */
  written: number;
  bytes?: number;
}

/** No folder is read further than so many entries. */
const ENTRIES = 10_000;

/** Whether a path is a `.btz` file or a bundle's folder; then when it was written. */
export async function traceAt(file: string): Promise<TraceFile | undefined> {
  try {
    const found = await fs.stat(file);
    if (found.isDirectory()) {
      const manifest = await fs.stat(path.join(file, 'trace.json'));
      return manifest.isFile() ? { path: file, written: manifest.mtimeMs } : undefined;
    }
    return found.isFile() && file.endsWith('.btz')
      ? { path: file, written: found.mtimeMs, bytes: found.size }
      : undefined;
  } catch {
    return undefined;
  }
}

/** The traces directly in a folder, newest first; none when there is no such folder. */
export async function tracesIn(folder: string): Promise<TraceFile[]> {
  let names: string[];
  try {
    names = await fs.readdir(folder);
  } catch {
    return [];
  }
  const found = await Promise.all(names.slice(0, ENTRIES).map((name) => traceAt(path.join(folder, name))));
  return newestFirst(found.filter((trace) => trace !== undefined));
}

/** Each path once, the newest first. */
export function newestFirst(traces: readonly TraceFile[]): TraceFile[] {
  const byPath = new Map(traces.map((trace) => [trace.path, trace]));
  return [...byPath.values()].sort((a, b) => b.written - a.written || a.path.localeCompare(b.path));
}

/** How long ago a time was, as one says it. */
export function ago(then: number, now: number): string {
  const minutes = Math.floor((now - then) / 60_000);
  const said = (count: number, unit: string) => `${count} ${unit}${count === 1 ? '' : 's'} ago`;
  if (minutes < 1) {
    return 'just now';
  }
  if (minutes < 60) {
    return said(minutes, 'minute');
  }
  if (minutes < 60 * 24) {
    return said(Math.floor(minutes / 60), 'hour');
  }
  return said(Math.floor(minutes / (60 * 24)), 'day');
}

/** A size in bytes, as one says it. */
export function size(bytes: number): string {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
