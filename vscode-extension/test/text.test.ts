/** Messages without links, and the only module that shows them. */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { plain } from '../src/text';

test('a command link in a trace is not a link in a message', () => {
  // VS Code's expression for links in messages.
  const links = /\[([^\]]+)\]\(((?:https?:\/\/|command:|file:)[^)\s]+)(?: (["'])(.+?)(\3))?\)/gi;
  for (const name of [
    '[Click](command:a.b)',
    '[a](command:workbench.action.x?%22y%22 "title")',
    '[x](HTTPS://evil.example)',
    'there is no call of [[a](b)](command:a.b)[c](file:///etc/passwd) after this place',
    '[a]\u200b(command:a)[b](command:b)',
  ]) {
    assert.equal(plain(`Bookmark ${name}: it is none`).match(links), null, name);
  }
});

test('a message has no invisible characters, and one line', () => {
  assert.equal(plain('a\u001b]0;t\u0007\n\tb\u202ec\u009b'), 'a\ufffd]0;t\ufffd b\ufffdc\ufffd');
  assert.equal(plain('Prüfung — 試験 🧪 operator[](int)'), 'Prüfung — 試験 🧪 operator[] (int)');
});

test('only one module shows messages and prompts', () => {
  const folder = path.join(process.cwd(), 'src');
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  assert.ok(files.length > 20);
  for (const file of files.filter((name) => name !== 'messages.ts')) {
    const text = readFileSync(path.join(folder, file), 'utf8');
    assert.doesNotMatch(text, /window\.(show(Error|Warning|Information)Message|showInputBox|withProgress)\b/, file);
    assert.doesNotMatch(text, /\bnew vscode\.MarkdownString\b/, file);
  }
});
