/** Opening the settings where ours are set. */

import * as vscode from 'vscode';

/** Shows one of our settings, which are those of a machine: in a remote window they are on its own page. */
export async function openSetting(id: string): Promise<void> {
  if (vscode.env.remoteName === undefined) {
    await vscode.commands.executeCommand('workbench.action.openSettings', id);
  } else {
    await vscode.commands.executeCommand('workbench.action.openRemoteSettings', { query: id });
  }
}
