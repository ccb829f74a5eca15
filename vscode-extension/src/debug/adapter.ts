/** Starts the debug adapter: `backtrail dap`. */

import * as path from 'node:path';
import * as vscode from 'vscode';
import type { HubAccount } from '../hub/account';
import { allowedArguments } from '../link/parse';
import { showError } from '../messages';
import { DEBUG_TYPE } from '../session';
import { openSetting } from '../settings';
import { type Located, locate } from './locate';

/** Returns the program's path, or why there is none. */
export function locateProgram(): Promise<Located> {
  const setting = vscode.workspace.getConfiguration(DEBUG_TYPE).get<string>('path', '');
  const shipped = vscode.extensions.getExtension('backtrail.backtrail')?.extensionPath;
  return locate(setting, process.env, shipped === undefined ? undefined : path.join(shipped, 'bin'));
}

/**
 * Returns the program's path. If it is not found, shows an error with a button that opens the
 * setting.
 */
export async function program(): Promise<string | undefined> {
  const located = await locateProgram();
  if ('path' in located) {
    return located.path;
  }
  const open = 'Open Settings';
  void showError(`Backtrail cannot start. ${located.problem}`, {}, open).then((chosen) => {
    if (chosen === open) {
      void openSetting('backtrail.path');
    }
  });
  return undefined;
}

/** Creates the adapter of each session. */
export class AdapterFactory implements vscode.DebugAdapterDescriptorFactory {
  constructor(private readonly account: HubAccount) {}

  async createDebugAdapterDescriptor(session: vscode.DebugSession): Promise<vscode.DebugAdapterDescriptor> {
    const executable = await program();
    if (executable === undefined) {
      // VS Code shows this in a dialog, because the session must not seem to start.
      throw new Error('The program backtrail was not found.');
    }
    const cwd = session.workspaceFolder?.uri.fsPath;
    const configuration = vscode.workspace.getConfiguration(DEBUG_TYPE);
    // A launch.json comes with its folder and can name a server. These settings are the machine's.
    const account = this.account.current;
    const origins = configuration.get<unknown>('allowedOrigins');
    const known = account === undefined ? origins : [...(Array.isArray(origins) ? origins : []), account.origin];
    const allowed = allowedArguments(known, configuration.get<unknown>('downloadLimit'));
    // Other users of the machine can read arguments, and not the environment.
    const env = account === undefined ? {} : { env: { BACKTRAIL_HUB: account.origin, BACKTRAIL_HUB_TOKEN: account.token } };
    return new vscode.DebugAdapterExecutable(executable, ['dap', ...allowed], { ...(cwd === undefined ? {} : { cwd }), ...env });
  }
}

/** Explains an adapter that ends before it responds: a version without `backtrail dap`. */
export class AdapterWatch implements vscode.DebugAdapterTrackerFactory {
  createDebugAdapterTracker(): vscode.DebugAdapterTracker {
    let hasAnswered = false;
    return {
      onDidSendMessage: () => {
        hasAnswered = true;
      },
      onExit: (code) => {
        if (!hasAnswered && code !== undefined && code !== 0) {
          void showError(
            `backtrail dap ended with status ${code} before it answered. Is the program older than this extension?`,
          );
        }
      },
    };
  }
}
