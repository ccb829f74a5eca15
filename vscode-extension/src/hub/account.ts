/** The hub that the user signed in to. The token is in VS Code's secret storage alone. */

import * as vscode from 'vscode';
import { originProblem } from '../link/parse';
import { askText, showError, showInformation } from '../messages';
import { type Account, isToken, nameOf } from './client';

/** The key in the secret storage. */
const KEY = 'backtrail.hub';

/** The account, and the commands that change it. */
export class HubAccount implements vscode.Disposable {
  private account: Account | undefined;
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly subscriptions: vscode.Disposable;

  /** Fires after the user signed in or out. */
  readonly onDidChange = this.changed.event;

  constructor(private readonly secrets: vscode.SecretStorage) {
    this.subscriptions = vscode.Disposable.from(
      this.changed,
      // Another window may sign in.
      secrets.onDidChange(({ key }) => {
        if (key === KEY) {
          void this.load();
        }
      }),
      vscode.commands.registerCommand('backtrail.signIn', () => this.signIn()),
      vscode.commands.registerCommand('backtrail.signOut', () => secrets.delete(KEY)),
    );
    void this.load();
  }

  dispose(): void {
    this.subscriptions.dispose();
  }

  /** Returns the account, or `undefined` if the user is not signed in. */
  get current(): Account | undefined {
    return this.account;
  }

  /** Returns whether the user signed in to this origin. */
  isSignedInTo(origin: string): boolean {
    return this.account?.origin === origin;
  }

  /** Reads the stored account. Call it before the account must be known. */
  async load(): Promise<void> {
    this.account = parseAccount(await this.secrets.get(KEY));
    await vscode.commands.executeCommand('setContext', 'backtrail.signedIn', this.account !== undefined);
    this.changed.fire();
  }

  /** Asks for an address and a token, and stores both. Returns whether the hub accepts them. */
  async signIn(): Promise<boolean> {
    const typed = await askText({
      title: 'Sign in to a hub',
      prompt: 'The address of the hub: https, or http on this machine',
      placeHolder: 'https://hub.example.com',
      value: this.account?.origin ?? '',
      ignoreFocusOut: true,
      validateInput: (text) => {
        const problem = originProblem(trimmed(text));
        return problem === undefined ? undefined : `The address ${problem}.`;
      },
    });
    if (typed === undefined) {
      return false;
    }
    const origin = trimmed(typed);
    const token = await askText({
      title: `Sign in to ${origin}`,
      prompt: 'A token with the scope “read”',
      password: true,
      ignoreFocusOut: true,
      validateInput: (text) => (isToken(text.trim()) ? undefined : 'A token has printable characters and no spaces.'),
    });
    if (token === undefined) {
      return false;
    }
    const account = { origin, token: token.trim() };
    try {
      const name = await nameOf(account);
      await this.secrets.store(KEY, JSON.stringify(account));
      await this.load();
      void showInformation(`Signed in to ${origin} as ${name}.`);
      return true;
    } catch (error) {
      void showError(`Backtrail is not signed in to ${origin}: ${error instanceof Error ? error.message : String(error)}.`);
      return false;
    }
  }
}

function trimmed(text: string): string {
  return text.trim().replace(/\/$/, '');
}

function parseAccount(stored: string | undefined): Account | undefined {
  if (stored === undefined) {
    return undefined;
  }
  try {
    const value: unknown = JSON.parse(stored);
    const { origin, token } = value as Partial<Account>;
    const isValid = originProblem(origin) === undefined && typeof token === 'string' && isToken(token);
    return isValid && typeof origin === 'string' ? { origin, token } : undefined;
  } catch {
    return undefined;
  }
}
