/** Compares two calls, and shows the result as a read-only document. */

import * as vscode from 'vscode';
import { askText } from '../messages';
import type { Call } from '../protocol';
import type { Session } from '../session';

const SCHEME = 'backtrail-compare';

/** Shows comparisons in the editor. */
export class Comparisons implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly disposable: vscode.Disposable;

  constructor() {
    this.disposable = vscode.Disposable.from(
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.workspace.onDidCloseTextDocument((document) => this.texts.delete(document.uri.toString())),
    );
  }

  dispose(): void {
    this.disposable.dispose();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? 'This comparison is over: compare the calls again.';
  }

  /** Compares two calls, or one with another that the user selects. */
  async compare(session: Session, calls: readonly Call[]): Promise<void> {
    const [first, second] = calls;
    if (first === undefined) {
      return;
    }
    const other = second?.position ?? (await ask(session, first));
    if (other === undefined) {
      return;
    }
    const { text } = await session.request('backtrail/compare', { calls: [first.position, other] });
    await this.show(`${first.function} ${first.position} and ${other}`, text);
  }

  private async show(title: string, text: string): Promise<void> {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${title.replaceAll('/', '_')}.txt` });
    this.texts.set(uri.toString(), text);
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document, { preview: true, preserveFocus: false });
  }
}

/** Asks for a call of the same function, the longest first, or a position. */
async function ask(session: Session, first: Call): Promise<string | undefined> {
  type Item = vscode.QuickPickItem & { position?: string };
  const { rows } = await session.request('backtrail/latency', { function: first.function, sort: 'length', count: 200 });
  const items = rows
    .filter((row) => row.position !== first.position)
    .map(
      (row): Item => ({
        label: row.length.text,
        description: [row.call ?? row.position, row.time?.text, row.caller && `called by ${row.caller}`]
          .filter((part) => part !== undefined)
          .join(', '),
        detail: `${row.instructions.toLocaleString()} instructions, thread ${row.threadId}`,
        position: row.position,
      }),
    );
  const other: Item = { label: 'Another call or position…', alwaysShow: true };
  const chosen = await vscode.window.showQuickPick([...items, other], {
    title: `Compare ${first.function} ${first.call} with which call?`,
    placeHolder: 'The longest first',
    matchOnDescription: true,
  });
  if (chosen === undefined || chosen.position !== undefined) {
    return chosen?.position;
  }
  return askText({ title: 'Compare with', prompt: 'A call (c17), or the position where one begins (t12#345)' });
}
