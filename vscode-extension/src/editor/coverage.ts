/** Marks the source lines that the current thread executed, with their counts. */

import * as vscode from 'vscode';
import { DEBUG_TYPE, type Session, type Sessions } from '../session';

/** The style of marks, by the setting. */
type Mode = 'bars' | 'counts' | 'off';
const MODES: readonly Mode[] = ['bars', 'counts', 'off'];

/** Marks lines in the visible editors. */
export class Coverage implements vscode.Disposable {
  private readonly mark: vscode.TextEditorDecorationType;
  private readonly disposables: vscode.Disposable[];
  /** The counts of each source file, for one thread of one session. */
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
        const next = MODES[(MODES.indexOf(mode()) + 1) % MODES.length] ?? 'bars';
        const configuration = vscode.workspace.getConfiguration(DEBUG_TYPE);
        await configuration.update('coverage', next, vscode.ConfigurationTarget.Global);
        vscode.window.setStatusBarMessage(`Marks at executed lines: ${next}`, 3000);
      }),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private show(): void {
    const session = this.sessions.active;
    // Lines are those of the thread that moved last, not of another selected thread.
    const threadId = session?.where?.threadId;
    if (session !== this.session || threadId !== this.threadId) {
      this.known.clear();
    }
    this.session = session;
    this.threadId = threadId;
    const isWanted = mode() !== 'off';
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
    const withCounts = mode() === 'counts';
    const marks = [...(lines ?? [])]
      .filter(([line, executions]) => executions > 0 && line >= 1 && line <= editor.document.lineCount)
      .map(([line, executions]) => {
        const after = { contentText: `${executions.toLocaleString()}×`, margin: '0 0 0 2em', color: COUNT_COLOUR };
        return {
          range: editor.document.lineAt(line - 1).range,
          hoverMessage: `Executed ${executions.toLocaleString()} time${executions === 1 ? '' : 's'} by this thread`,
          ...(withCounts ? { renderOptions: { after } } : {}),
        };
      });
    editor.setDecorations(this.mark, marks);
  }
}

const COUNT_COLOUR = new vscode.ThemeColor('editorCodeLens.foreground');

function mode(): Mode {
  const set = vscode.workspace.getConfiguration(DEBUG_TYPE).get<string>('coverage', 'bars');
  return MODES.find((known) => known === set) ?? 'bars';
}
