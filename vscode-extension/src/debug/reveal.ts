/** Shows the view Run and Debug when a session starts, and not only for the first one. */

import * as vscode from 'vscode';
import type { Sessions } from '../session';

/** Shows the view for each session that starts, unless the user's settings say otherwise. */
export function revealDebugView(sessions: Sessions): vscode.Disposable {
  return sessions.onDidStart(() => {
    // By default, VS Code shows the view at breakpoints alone, and a session begins at a crash.
    const chosen = vscode.workspace.getConfiguration('debug').inspect<string>('openDebug');
    const isChosen = [chosen?.globalValue, chosen?.workspaceValue, chosen?.workspaceFolderValue].some((value) => value !== undefined);
    if (!isChosen) {
      void vscode.commands
        .executeCommand('workbench.view.debug')
        .then(() => vscode.commands.executeCommand('workbench.action.focusActiveEditorGroup'));
    }
  });
}
