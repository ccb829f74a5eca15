/** Checks package.json for errors that VS Code would only report at run time. */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import * as path from 'node:path';
import { test } from 'node:test';

interface Entry {
  command: string;
  title?: string;
  key?: string;
  when?: string;
  group?: string;
}

interface Manifest {
  contributes: {
    commands: Entry[];
    keybindings: Entry[];
    menus: { [menu: string]: Entry[] };
    views: { [container: string]: { id: string }[] };
    configuration: { properties: { [name: string]: { scope?: string } } };
  };
}

// Tests run in the extension's folder.
const { contributes } = JSON.parse(readFileSync('package.json', 'utf8')) as Manifest;
const declared = new Set(contributes.commands.map(({ command }) => command));

test('every command has a title, once', () => {
  assert.equal(declared.size, contributes.commands.length);
  for (const { command, title, key } of contributes.commands) {
    assert.match(command, /^backtrail\./);
    assert.ok(title !== undefined && title !== '' && key === undefined, command);
  }
});

test('menus and keys name existing commands', () => {
  for (const [menu, entries] of Object.entries(contributes.menus)) {
    for (const { command, key } of entries) {
      assert.ok(declared.has(command) && key === undefined, `${menu}: ${command}`);
    }
  }
  for (const { command, key, when } of contributes.keybindings) {
    assert.ok(declared.has(command) || command.startsWith('workbench.action.debug.'), command);
    assert.ok(key !== undefined && when?.includes("debugType == 'backtrail'"), command);
  }
});

test('no two commands have the same key at the same time', () => {
  const all = contributes.keybindings.map(({ key, when }) => `${key} ${when}`);
  assert.equal(new Set(all).size, all.length);
});

test('every command and every view is in the code', () => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  const code = files.map((name) => readFileSync(path.join('src', name), 'utf8')).join('\n');
  for (const command of declared) {
    const last = command.split('.').at(-1) ?? '';
    assert.ok(code.includes(`'${command}'`) || code.includes(`'${last}'`) || code.includes(`.${last}'`), command);
  }
  for (const { id } of Object.values(contributes.views).flat()) {
    assert.ok(code.includes(`'${id}'`), id);
  }
});

test('settings that a workspace must not set have machine scope', () => {
  for (const name of ['path', 'spool', 'allowedOrigins', 'downloadLimit']) {
    assert.equal(contributes.configuration.properties[`backtrail.${name}`]?.scope, 'machine', name);
  }
});
