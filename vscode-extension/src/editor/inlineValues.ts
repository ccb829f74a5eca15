/** Known values of arguments and locals at the ends of source lines. */

import * as vscode from 'vscode';
import { DEBUG_TYPE, type Sessions } from '../session';
import { LANGUAGES } from './languages';
import { mentions } from './words';

/** The maximum length of a value. */
const LONGEST = 60;

/** Returns values while one of our sessions is active, and nothing for other sessions. */
export class InlineValues implements vscode.InlineValuesProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeInlineValues = this.changed.event;
  private registered: vscode.Disposable | undefined;
  private readonly disposables: vscode.Disposable[];

  constructor(private readonly sessions: Sessions) {
    this.disposables = [
      this.changed,
      sessions.onDidChangeActive(() => this.register()),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration('backtrail.inlineValues')) {
          this.register();
        }
      }),
    ];
    this.register();
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables, ...(this.registered === undefined ? [] : [this.registered])).dispose();
  }

  private register(): void {
    const wanted =
      this.sessions.active !== undefined && vscode.workspace.getConfiguration(DEBUG_TYPE).get('inlineValues', true);
    if (wanted && this.registered === undefined) {
      const selector = LANGUAGES.map((language) => ({ language }));
      this.registered = vscode.languages.registerInlineValuesProvider(selector, this);
    } else if (!wanted) {
      this.registered?.dispose();
      this.registered = undefined;
    }
    this.changed.fire();
  }

  async provideInlineValues(
    document: vscode.TextDocument,
    _visible: vscode.Range,
    context: vscode.InlineValueContext,
  ): Promise<vscode.InlineValue[]> {
    const session = this.sessions.active;
    if (session === undefined || vscode.debug.activeDebugSession?.id !== session.debug.id) {
      return [];
    }
    const locals = await session.request('backtrail/locals', { frameId: context.frameId }).catch(() => undefined);
    if (locals === undefined || (locals.path !== undefined && !isSame(locals.path, document))) {
      return [];
    }
    const values = new Map(locals.variables.filter(({ unknown }) => !unknown).map(({ name, value }) => [name, value]));
    const here = (locals.line ?? context.stoppedLocation.end.line + 1) - 1;
    const last = Math.min(here, document.lineCount - 1);
    const first = Math.max(0, Math.min((locals.firstLine ?? here + 1) - 1, last));
    return mentions((line) => document.lineAt(line).text, first, last, new Set(values.keys())).map(
      ({ line, from, to, name }) =>
        new vscode.InlineValueText(new vscode.Range(line, from, line, to), `${name} = ${shortened(values.get(name) ?? '')}`),
    );
  }
}

function isSame(path: string, document: vscode.TextDocument): boolean {
  return document.uri.scheme === 'file' && vscode.Uri.file(path).fsPath === document.uri.fsPath;
}

function shortened(value: string): string {
  const line = value.replace(/\s+/g, ' ');
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line;
}
