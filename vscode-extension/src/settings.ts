/** Opens the settings page of our settings. */

import * as vscode from 'vscode';

/**
 * Shows one of our settings. They are machine settings, which have a separate page in a remote
 * window.
 */
export async function openSetting(id: string): Promise<void> {
  if (vscode.env.remoteName === undefined) {
    await vscode.commands.executeCommand('workbench.action.openSettings', id);
  } else {
    await vscode.commands.executeCommand('workbench.action.openRemoteSettings', { query: id });
  }
}
