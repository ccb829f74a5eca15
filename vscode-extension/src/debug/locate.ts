/** Search for the program `backtrail`. */

import * as fs from 'node:fs/promises';
import { constants } from 'node:fs';
import * as path from 'node:path';

/** The path of the program, or the message for the user. */
export type Located = { path: string } | { problem: string };

/**
 * Returns the program of the setting if it is set, otherwise the one that the extension contains,
 * otherwise the first on `PATH`. The extension's packages for one platform contain a program, in
 * the folder `shipped`.
 */
export async function locate(
  setting: string,
  environment: { [name: string]: string | undefined },
  shipped?: string,
): Promise<Located> {
  const configured = setting.trim();
  if (configured !== '') {
    const given = configured.startsWith('~/') ? path.join(environment['HOME'] ?? '', configured.slice(2)) : configured;
    if (!path.isAbsolute(given)) {
      return { problem: `The setting backtrail.path is '${configured}': it must be a whole path.` };
    }
    return (await isProgram(given))
      ? { path: given }
      : { problem: `The setting backtrail.path is '${configured}', and no program is there.` };
  }
  const name = process.platform === 'win32' ? 'backtrail.exe' : 'backtrail';
  if (shipped !== undefined && (await isProgram(path.join(shipped, name)))) {
    return { path: path.join(shipped, name) };
  }
  for (const folder of (environment['PATH'] ?? '').split(path.delimiter)) {
    // A relative folder in PATH depends on the working directory, which is never intended.
    if (path.isAbsolute(folder) && (await isProgram(path.join(folder, name)))) {
      return { path: path.join(folder, name) };
    }
  }
  return { problem: 'The program backtrail is not on PATH, and the setting backtrail.path is empty.' };
}

async function isProgram(file: string): Promise<boolean> {
  try {
    await fs.access(file, constants.X_OK);
    return (await fs.stat(file)).isFile();
  } catch {
    return false;
  }
}
