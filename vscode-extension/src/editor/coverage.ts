/** Marks at the source lines that the current thread executed, with how often on hover. */

import * as vscode from 'vscode';
import { DEBUG_TYPE, type Session, type Sessions } from '../session';

/** Marks the editors that are seen. */
export class Coverage implements vscode.Disposable {
  private readonly mark: vscode.TextEditorDecorationType;
  private readonly disposables: vscode.Disposable[];
  /** What is known of each source file, of one thread of one session. */
  private readonly known = new Map<string, Promise<Map<number, number> | undefined>>();
  private session: Session | undefined;
  private threadId: number | undefined;

  constructor(private readonly sessions: Sessions, extension: vscode.Uri) {
    const icon = (name: string) => vscode.Uri.joinPath(extension, 'media', name);
    this.mark = vscode.window.createTextEditorDecorationType({
      gutterIconPath: icon('executed-dark.svg'),
      gutterIconSize: 'contain',
      light: { gutterIconPath: icon('executed-light.svg') },
      overviewRulerLane: vscode.OverviewRulerLane.Left,
    });
    this.disposables = [
      this.mark,
      vscode.window.onDidChangeVisibleTextEditors(() => this.show()),
      sessions.onDidChangeActive(() => this.show()),
      sessions.onDidMove(() => this.show()),
      sessions.onDidDecode(() => {
        this.known.clear();
        this.show();
      }),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration('backtrail.coverage')) {
          this.show();
        }
      }),
      vscode.commands.registerCommand('backtrail.toggleCoverage', async () => {
        const configuration = vscode.workspace.getConfiguration(DEBUG_TYPE);
        const isShown = configuration.get('coverage', true);
        await configuration.update('coverage', !isShown, vscode.ConfigurationTarget.Global);
        vscode.window.setStatusBarMessage(`Executed lines are ${isShown ? 'no longer' : 'now'} marked`, 3000);
      }),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private show(): void {
    const session = this.sessions.active;
    // The thread that moved last, and no other that is only looked at: its lines are told.
    const threadId = session?.where?.threadId;
    if (session !== this.session || threadId !== this.threadId) {
      this.known.clear();
    }
    this.session = session;
    this.threadId = threadId;
    const isWanted = vscode.workspace.getConfiguration(DEBUG_TYPE).get('coverage', true);
    for (const editor of vscode.window.visibleTextEditors) {
      if (isWanted && session?.where !== undefined && !session.isPartial && editor.document.uri.scheme === 'file') {
        void this.fill(editor, session);
      } else {
        editor.setDecorations(this.mark, []);
      }
    }
  }

  private async fill(editor: vscode.TextEditor, session: Session): Promise<void> {
    const path = editor.document.uri.fsPath;
    let asked = this.known.get(path);
    if (asked === undefined) {
      asked = session
        .request('backtrail/coverage', { path })
        .then(({ lines }) => new Map(lines.map(({ line, executions }) => [line, executions])))
        .catch(() => undefined);
      this.known.set(path, asked);
    }
    const lines = await asked;
    if (session !== this.sessions.active || this.known.get(path) !== asked) {
      return;
    }
    const marks = [...(lines ?? [])]
      .filter(([line, executions]) => executions > 0 && line >= 1 && line <= editor.document.lineCount)
      .map(([line, executions]) => ({
        range: editor.document.lineAt(line - 1).range,
        hoverMessage: `Executed ${executions.toLocaleString()} time${executions === 1 ? '' : 's'} by this thread`,
      }));
    editor.setDecorations(this.mark, marks);
  }
}
