/** Opens links: asks the user, downloads, and starts the session. */

import * as path from 'node:path';
import * as vscode from 'vscode';
import type { Traces } from '../debug/open';
import { size, traceAt } from '../debug/traces';
import type { HubAccount } from '../hub/account';
import { showError, showInformation, showWarning, withProgress } from '../messages';
import { DEBUG_TYPE } from '../session';
import { openSetting } from '../settings';
import { digestOf, download } from './download';
import { type Link, SPOOL, addressOf, fileNameOf, isAllowed, parseLink, placeInSpool } from './parse';

/** Handles `vscode://backtrail.backtrail/…`. */
export class LinkHandler implements vscode.UriHandler {
  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly traces: Traces,
    private readonly account: HubAccount,
  ) {}

  async handleUri(uri: vscode.Uri): Promise<void> {
    const parsed = parseLink(uri.path, uri.query);
    if ('problem' in parsed) {
      void showError(`Backtrail does not open this link: ${parsed.problem}.`);
      return;
    }
    const { link } = parsed;
    if (link.origin === SPOOL) {
      await this.openCollected(link);
      return;
    }
    await this.account.load();
    const allowed = vscode.workspace.getConfiguration(DEBUG_TYPE).get<unknown>('allowedOrigins');
    if (!this.account.isSignedInTo(link.origin) && !isAllowed(link.origin, allowed)) {
      // The user types the address, because a link must not choose who gets the token.
      const signIn = 'Sign In to Hub…';
      const chosen = await refuse(link.origin, `A link asks for crash ${link.crash}`, 'follow the link', signIn);
      if (chosen !== signIn || !(await this.account.signIn())) {
        return;
      }
      if (!this.account.isSignedInTo(link.origin)) {
        void showError(`Crash ${link.crash} is at ${link.origin}, which is not the hub that you signed in to.`);
        return;
      }
    }
    if (!(await agreed(link, `from ${link.origin}`, 'The trace is downloaded, and opened in the debugger.'))) {
      return;
    }
    if (this.account.isSignedInTo(link.origin)) {
      // The adapter fetches it, because it has the token.
      await this.start(link, addressOf(link));
    } else {
      await this.open(link);
    }
  }

  /**
   * Opens a crash from the collector of this machine. Nothing is downloaded, and only the setting
   * names the folder.
   */
  private async openCollected(link: Link): Promise<void> {
    const spool = vscode.workspace.getConfiguration(DEBUG_TYPE).get<unknown>('spool');
    const bundle = placeInSpool(spool, link.crash);
    // The user is asked first, because a link must not discover or show which crashes exist.
    if (!(await agreed(link, 'that the collector kept here', 'It is opened in the debugger; nothing is downloaded.'))) {
      return;
    }
    if (bundle === undefined) {
      void showError(
        `Crash ${link.crash} cannot be opened: the setting backtrail.spool names no folder by its whole path.`,
      );
    } else if ((await traceAt(bundle)) === undefined) {
      void showError(
        `Crash ${link.crash} is not in ${path.dirname(bundle)}: it went to make room, or was kept on another machine (setting backtrail.spool).`,
      );
    } else {
      await this.start(link, bundle);
    }
  }

  private async open(link: Link): Promise<void> {
    const folder = vscode.Uri.joinPath(this.context.globalStorageUri, 'crashes').fsPath;
    const file = path.join(folder, fileNameOf(link));
    try {
      // A file with the right digest is not downloaded again. Without a digest, the server may have
      // a newer file.
      if (link.sha256 === undefined || (await digestOf(file)) !== link.sha256) {
        await fetched(link, file);
      }
    } catch (error) {
      if (!(error instanceof Error && error.name === 'AbortError')) {
        const reason = error instanceof Error ? error.message : String(error);
        void showError(`Crash ${link.crash} cannot be had from ${link.origin}: ${reason}.`);
      }
      return;
    }
    await this.start(link, file);
  }

  private async start(link: Link, bundle: string): Promise<void> {
    const position = link.at === undefined ? {} : { position: link.at };
    const digest = link.sha256 === undefined ? {} : { sha256: link.sha256 };
    await this.traces.debug(bundle, { name: `Backtrail: ${link.crash}`, ...position, ...digest });
  }
}

/**
 * Shows the refused origin, with a button that opens the setting, and others. Nothing is
 * downloaded. Returns the chosen button.
 */
export async function refuse(
  origin: string,
  who: string,
  again: string,
  ...others: string[]
): Promise<string | undefined> {
  const open = 'Open Settings';
  const chosen = await showWarning(
    `Crashes from ${origin} are not opened.`,
    {
      modal: true,
      detail: `${who} from there, and the setting backtrail.allowedOrigins does not have this origin. If you trust it, add it there and ${again} again.`,
    },
    ...others,
    open,
  );
  if (chosen === open) {
    await openSetting('backtrail.allowedOrigins');
  }
  return chosen;
}

async function agreed(link: Link, whence: string, what: string): Promise<boolean> {
  const open = 'Open';
  const at = link.at === undefined ? '' : ` It asks to stand at ${link.at}.`;
  const chosen = await showInformation(
    `Open crash ${link.crash} ${whence}?`,
    { modal: true, detail: `A link asks for it. ${what}${at}` },
    open,
  );
  return chosen === open;
}

function fetched(link: Link, file: string): Thenable<void> {
  const limit = vscode.workspace.getConfiguration(DEBUG_TYPE).get<number>('downloadLimit', 2048) * 2 ** 20;
  const options = {
    location: vscode.ProgressLocation.Notification,
    title: `Downloading crash ${link.crash}`,
    cancellable: true,
  };
  return withProgress(options, async (progress, token) => {
    const abort = new AbortController();
    token.onCancellationRequested(() => abort.abort());
    let shown = 0;
    let reportedAt = 0;
    await download({
      address: addressOf(link),
      file,
      limit,
      ...(link.sha256 === undefined ? {} : { sha256: link.sha256 }),
      signal: abort.signal,
      progress: (bytes, total) => {
        const now = Date.now();
        if (now - reportedAt < 100) {
          return;
        }
        reportedAt = now;
        const percent = total === undefined || total === 0 ? 0 : (100 * bytes) / total;
        const message = total === undefined ? size(bytes) : `${size(bytes)} of ${size(total)}`;
        progress.report({ message, increment: percent - shown });
        shown = percent;
      },
    });
  });
}
