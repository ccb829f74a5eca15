/** Search for traces on disk. */

import * as fs from 'node:fs/promises';
import * as path from 'node:path';

/** A trace on disk. */
export interface TraceFile {
  path: string;
  /** The modification time, in milliseconds since 1970. */
  written: number;
  bytes?: number;
}

/** The maximum number of entries that are read from a folder. */
const ENTRIES = 10_000;

/**
 * Returns a `.btz` file or a bundle's folder with its modification time, or `undefined` for other
 * paths.
 */
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

/** Returns the traces directly in a folder, newest first. A missing folder has none. */
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

/** Removes duplicate paths, and sorts by time, newest first. */
export function newestFirst(traces: readonly TraceFile[]): TraceFile[] {
  const byPath = new Map(traces.map((trace) => [trace.path, trace]));
  return [...byPath.values()].sort((a, b) => b.written - a.written || a.path.localeCompare(b.path));
}

/** Formats the age of a time for people. */
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

/** Formats a size in bytes for people. */
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
