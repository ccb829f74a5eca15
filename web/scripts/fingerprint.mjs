// The fingerprint of the files that the page is built from, which tidy computes without Node.js.
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

/** The files and folders of the sources. */
const INPUTS = ['package-lock.json', 'scripts', 'src'];

/** Returns the files in the order of their paths. */
function files(root, name) {
  const inside = path.join(root, name);
  if (/\.\w+$/.test(name)) {
    return [name];
  }
  return readdirSync(inside).flatMap((entry) => files(root, `${name}/${entry}`));
}

/** Returns FNV-1a of the paths and contents of all files, each with a zero byte after it. */
export function fingerprint(root) {
  let hash = 0xcbf29ce484222325n;
  const add = (bytes) => {
    for (const byte of bytes) {
      hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
    }
    hash = BigInt.asUintN(64, hash * 0x100000001b3n);
  };
  for (const name of INPUTS.flatMap((input) => files(root, input)).sort()) {
    add(Buffer.from(name));
    add(readFileSync(path.join(root, name)));
  }
  return hash.toString(16).padStart(16, '0');
}
