/** Opens a profile in a panel, with its weights at the lines of sources. */

import { execFile } from 'node:child_process';
import * as path from 'node:path';
import * as vscode from 'vscode';
import type { CallKind } from '../../../../web/src/calls';
import { type ProfileData, parse } from '../../../../web/src/data';
import { lineWeights } from '../../../../web/src/lines';
import { Profile, type Selection } from '../../../../web/src/model';
import { ROOT } from '../../../../web/src/tree';
import { program } from '../../debug/adapter';
import type { Traces } from '../../debug/open';
import { showWarning, withProgress } from '../../messages';
import { report } from '../../session';
import { setPage } from '../html';
import { CostMarks } from './costs';
import type { FromPage, ToPage } from './messages';
import { BODY, STYLE } from './page';
import { closest, ends } from './sources';

/** The largest data that are read, in bytes. */
const MAX_DATA = 512 * 1024 * 1024;
/** The files of a name that are compared. */
const MAX_FILES = 50;

/** The command that opens profiles, and the marks of the one in front. */
export class Profiles implements vscode.Disposable {
  private readonly marks = new CostMarks();
  private readonly commands = [
    vscode.commands.registerCommand('backtrail.openProfile', (given?: vscode.Uri) => this.open(given)),
    vscode.commands.registerCommand('backtrail.profile.slowest', () => this.front?.openCall('slowest')),
    vscode.commands.registerCommand('backtrail.profile.typical', () => this.front?.openCall('typical')),
  ];
  private front: OpenProfile | undefined;

  constructor(
    private readonly extension: vscode.Uri,
    private readonly traces: Traces,
  ) {}

  dispose(): void {
    vscode.Disposable.from(...this.commands, this.marks).dispose();
  }

  private async open(given: vscode.Uri | undefined): Promise<void> {
    const title = 'Open a Profile';
    const uri = given ?? (await vscode.window.showOpenDialog({ title, openLabel: 'Open Profile' }))?.[0];
    const executable = uri && (await program());
    if (uri === undefined || executable === undefined) {
      return;
    }
    // A bundle in a folder is chosen by its file.
    const file = path.basename(uri.fsPath) === 'trace.json' ? path.dirname(uri.fsPath) : uri.fsPath;
    const name = path.basename(file);
    try {
      const options = { location: vscode.ProgressLocation.Notification, title: `Reading ${name}` };
      const data = parse(await withProgress(options, () => exported(executable, file)));
      this.show(file, { ...data, names: [name] });
    } catch (error) {
      report(error);
    }
  }

  private show(file: string, data: ProfileData): void {
    const name = path.basename(file);
    const panel = vscode.window.createWebviewPanel('backtrail.profile', name, vscode.ViewColumn.Active, { retainContextWhenHidden: true });
    const openCall = (position: string) => this.traces.debug(file, { position });
    const profile = new OpenProfile(new Profile(data), panel, this.marks, openCall);
    this.front = profile;
    panel.onDidChangeViewState(() => {
      if (panel.active && this.front !== profile) {
        this.front = profile;
        profile.mark();
      }
    });
    panel.onDidDispose(() => {
      if (this.front === profile) {
        this.front = undefined;
        this.marks.set(undefined);
      }
    });
    panel.webview.onDidReceiveMessage((message: FromPage) => profile.receive(message).catch(report));
    setPage(panel.webview, this.extension, { title: 'Profile', script: 'profile.js', style: STYLE, body: BODY });
  }
}

/** Returns the data of a profile, as the program writes them. */
function exported(executable: string, file: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const given = ['profile', 'export', file, '--format', 'html-data'];
    execFile(executable, given, { maxBuffer: MAX_DATA, encoding: 'utf8' }, (error, stdout, stderr) => {
      if (error === null) {
        resolve(stdout);
      } else {
        reject(new Error(stderr.trim() === '' ? error.message : stderr.trim()));
      }
    });
  });
}

/** A profile in a panel. */
class OpenProfile {
  private selection: Selection;
  /** Files that are at another path on this machine. */
  private readonly places = new Map<string, string>();

  constructor(
    private readonly profile: Profile,
    private readonly panel: vscode.WebviewPanel,
    private readonly marks: CostMarks,
    /** Starts the debugger at a position of the bundle. */
    private readonly debug: (position: string) => Promise<boolean>,
  ) {
    this.selection = { event: profile.data.event, range: undefined, normalize: false };
  }

  async receive(message: FromPage): Promise<void> {
    switch (message.type) {
      case 'ready': {
        const answer: ToPage = { type: 'data', data: this.profile.data };
        await this.panel.webview.postMessage(answer);
        break;
      }
      case 'selected':
        this.selection = message.selection;
        this.mark();
        break;
      case 'source':
        await this.openSource(message.file, message.line);
        break;
      case 'call':
        await this.debug(message.position);
        break;
    }
  }

  /** Opens a call of the page's frame. */
  openCall(kind: CallKind): void {
    const message: ToPage = { type: 'open', kind };
    void this.panel.webview.postMessage(message);
  }

  /** Shows the weights of lines for the selection of the page. */
  mark(): void {
    const { profile, selection, places } = this;
    const { name = '', unit = '' } = profile.data.events[selection.event] ?? {};
    const all = profile.weigh(selection).total[0]?.[ROOT] ?? 0;
    this.marks.set({ lines: lineWeights(profile, selection), places, event: name, unit, all });
  }

  private async openSource(file: string, line: number): Promise<void> {
    const uri = await this.find(file);
    if (uri === undefined) {
      void showWarning(`${file} is not on this machine, and no folder of the workspace has a file of this name.`);
      return;
    }
    const document = await vscode.workspace.openTextDocument(uri);
    const at = Math.max(0, Math.min(line, document.lineCount) - 1);
    const selection = new vscode.Range(at, 0, at, 0);
    await vscode.window.showTextDocument(document, { viewColumn: vscode.ViewColumn.Beside, selection });
    this.mark();
  }

  /** Returns a source file: the one at its path, or the closest one of the workspace. */
  private async find(file: string): Promise<vscode.Uri | undefined> {
    const exact = vscode.Uri.file(file);
    if (path.isAbsolute(file) && (await exists(exact))) {
      return exact;
    }
    const found = (await beside(file)) ?? (await searched(file));
    if (found !== undefined) {
      this.places.set(file, found.fsPath);
    }
    return found;
  }
}

/** Returns the file of a workspace folder with the longest end of the path. */
async function beside(file: string): Promise<vscode.Uri | undefined> {
  for (const end of ends(file)) {
    for (const { uri } of vscode.workspace.workspaceFolders ?? []) {
      const found = vscode.Uri.joinPath(uri, end);
      if (await exists(found)) {
        return found;
      }
    }
  }
  return undefined;
}

/** Returns the closest file of this name anywhere in the workspace. */
async function searched(file: string): Promise<vscode.Uri | undefined> {
  const name = file.split(/[\\/]/).at(-1) ?? '';
  const pattern = `**/${name.replace(/[[\]{}*?!]/g, '?')}`;
  const found = await vscode.workspace.findFiles(pattern, undefined, MAX_FILES);
  const place = closest(found.map(({ fsPath }) => fsPath), file);
  return place === undefined ? undefined : vscode.Uri.file(place);
}

function exists(uri: vscode.Uri): Thenable<boolean> {
  return vscode.workspace.fs.stat(uri).then(() => true, () => false);
}
