/** The view *Recent Crashes*: the newest crashes of the hub. */

import * as vscode from 'vscode';
import type { Traces } from '../debug/open';
import { ago } from '../debug/traces';
import { showError } from '../messages';
import { plain } from '../text';
import type { HubAccount } from './account';
import { type HubCrash, bundleAddress, recentCrashes } from './client';

/** Lists crashes, and opens them in the debugger. */
export class RecentCrashesView implements vscode.TreeDataProvider<HubCrash>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly subscriptions: vscode.Disposable;

  readonly onDidChangeTreeData = this.changed.event;

  constructor(
    private readonly account: HubAccount,
    private readonly traces: Traces,
  ) {
    this.subscriptions = vscode.Disposable.from(
      this.changed,
      account.onDidChange(() => this.changed.fire()),
      vscode.window.registerTreeDataProvider('backtrail.crashes', this),
      vscode.commands.registerCommand('backtrail.crashes.refresh', () => this.changed.fire()),
      vscode.commands.registerCommand('backtrail.crashes.open', (crash: HubCrash) => this.open(crash)),
    );
  }

  dispose(): void {
    this.subscriptions.dispose();
  }

  async getChildren(parent?: HubCrash): Promise<HubCrash[]> {
    const account = this.account.current;
    if (parent !== undefined || account === undefined) {
      return [];
    }
    try {
      return await recentCrashes(account);
    } catch (error) {
      void showError(`The crashes of ${account.origin} cannot be listed: ${error instanceof Error ? error.message : String(error)}.`);
      return [];
    }
  }

  getTreeItem(crash: HubCrash): vscode.TreeItem {
    const item = new vscode.TreeItem(plain(crash.title || crash.signal || crash.id));
    item.id = crash.id;
    // Titles name the cause and the function, most of them without the signal.
    const signal = crash.title.includes(crash.signal) ? '' : crash.signal;
    const more = [signal, ago(crash.time, Date.now()), crash.service, crash.build];
    item.description = plain(more.filter((text) => text !== '').join(', '));
    item.tooltip = plain(
      [`${crash.signal} in ${crash.service} ${crash.build}`, `on ${crash.host}`, new Date(crash.time).toLocaleString()].join('\n'),
    );
    item.iconPath = new vscode.ThemeIcon('flame');
    item.contextValue = 'crash';
    item.command = { command: 'backtrail.crashes.open', title: 'Reverse Debug', arguments: [crash] };
    return item;
  }

  /** The adapter fetches the bundle. It gets the token in its environment. */
  private async open(crash: HubCrash): Promise<void> {
    const account = this.account.current;
    if (account !== undefined) {
      await this.traces.debug(bundleAddress(account, crash.id), { name: `Backtrail: ${plain(crash.title || crash.id)}` });
    }
  }
}
