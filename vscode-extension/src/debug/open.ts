/** Opens traces: file picker, recent crashes, Explorer, and the editor of `.btz` files. */

import * as path from 'node:path';
import * as vscode from 'vscode';
import { DEBUG_TYPE, report } from '../session';
import { plain } from '../text';
import type { Located } from './locate';
import { Summaries } from './summary';
import { type TraceFile, ago, newestFirst, size, traceAt, tracesIn } from './traces';

/** The key of recently opened traces, newest first. */
const OPENED = 'backtrail.opened';
const OPENED_AT_MOST = 50;
/** The most traces that are read for their signals and functions, the newest first. */
const SUMMARIZED = 30;
/** The most that are read at once. */
const READ_AT_ONCE = 2;

/** Remembers and offers traces. */
export class Traces {
  private readonly summaries: Summaries;

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly program: () => Promise<Located>,
  ) {
    this.summaries = new Summaries(context.globalState);
  }

  /** Starts a session on a trace. */
  async debug(bundle: string, more: { position?: string; name?: string; sha256?: string } = {}): Promise<boolean> {
    const { name = `Backtrail: ${path.basename(bundle)}`, ...arguments_ } = more;
    const folder =
      vscode.workspace.getWorkspaceFolder(vscode.Uri.file(bundle)) ?? vscode.workspace.workspaceFolders?.[0];
    const configuration = { type: DEBUG_TYPE, request: 'launch', name, bundle, ...arguments_ };
    return vscode.debug.startDebugging(folder, configuration);
  }

  /** Stores that a trace was opened. */
  async remember(bundle: string): Promise<void> {
    const others = this.opened().filter((known) => known !== bundle);
    await this.context.globalState.update(OPENED, [bundle, ...others].slice(0, OPENED_AT_MOST));
  }

  /** Asks for a file, or a bundle's folder. */
  async askFile(): Promise<string | undefined> {
    const here = vscode.workspace.workspaceFolders?.[0]?.uri;
    const chosen = await vscode.window.showOpenDialog({
      title: 'Open a trace: a .btz file, an ELF core, or the trace.json of a bundle',
      openLabel: 'Reverse Debug',
      canSelectFiles: true,
      canSelectFolders: false,
      filters: { Traces: ['btz', 'json'], 'All files': ['*'] },
      ...(here === undefined ? {} : { defaultUri: here }),
    });
    const file = chosen?.[0]?.fsPath;
    return file !== undefined && path.basename(file) === 'trace.json' ? path.dirname(file) : file;
  }

  /** Asks for one of the recent crashes. */
  async askRecent(): Promise<string | undefined> {
    type Item = vscode.QuickPickItem & { bundle?: string };
    const picker = vscode.window.createQuickPick<Item>();
    picker.title = 'Recent crashes';
    picker.placeholder = 'Which trace?';
    picker.matchOnDescription = true;
    picker.matchOnDetail = true;
    picker.busy = true;
    picker.show();
    const closed = new AbortController();
    const chosen = new Promise<string | undefined>((resolve) => {
      picker.onDidAccept(() => {
        const [item] = picker.selectedItems;
        resolve(item?.bundle ?? (item === undefined ? undefined : this.askFile()));
        picker.hide();
      });
      picker.onDidHide(() => {
        resolve(undefined);
        closed.abort();
        picker.dispose();
      });
    });
    const now = Date.now();
    const recent = await this.recent();
    const items = recent.map(({ trace, from }): Item => ({
      label: path.basename(trace.path),
      description: [ago(trace.written, now), ...(trace.bytes === undefined ? [] : [size(trace.bytes)]), from].join(', '),
      detail: `${new Date(trace.written).toLocaleString()}  ${path.dirname(trace.path)}`,
      iconPath: new vscode.ThemeIcon(trace.bytes === undefined ? 'folder' : 'file-binary'),
      bundle: trace.path,
    }));
    const browse: Item = { label: 'Choose a file…', iconPath: new vscode.ThemeIcon('folder-opened'), alwaysShow: true };
    const separator: Item = { label: '', kind: vscode.QuickPickItemKind.Separator };
    const show = () => {
      if (!closed.signal.aborted) {
        // Setting the items again would otherwise select the first.
        const active = picker.activeItems;
        picker.keepScrollPosition = true;
        picker.items = [...items, separator, browse];
        picker.activeItems = active.filter((item) => picker.items.includes(item));
      }
    };
    show();
    void this.summarize(recent.map(({ trace }) => trace), closed.signal, (at, summary) => {
      const item = items[at];
      if (item !== undefined) {
        item.description = `${plain(summary)}, ${item.description ?? ''}`;
        show();
      }
    }).finally(() => {
      if (!closed.signal.aborted) {
        picker.busy = false;
      }
    });
    return chosen;
  }

  /** Reads how the newest traces end, and reports each. */
  private async summarize(
    traces: readonly TraceFile[],
    stop: AbortSignal,
    report: (at: number, summary: string) => void,
  ): Promise<void> {
    const located = await this.program();
    if (!('path' in located) || !vscode.workspace.isTrusted) {
      return;
    }
    const waiting = traces.slice(0, SUMMARIZED).map((trace, at) => ({ trace, at }));
    const work = async () => {
      for (let next = waiting.shift(); next !== undefined && !stop.aborted; next = waiting.shift()) {
        const summary = await this.summaries.of(located.path, next.trace, stop);
        if (summary !== undefined && !stop.aborted) {
          report(next.at, summary);
        }
      }
    };
    await Promise.all(Array.from({ length: READ_AT_ONCE }, work));
  }

  /**
   * Returns the trace for F5 without a configuration: the selected one, or the workspace itself.
   */
  async implied(): Promise<string | undefined> {
    const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    const shown = input instanceof vscode.TabInputCustom || input instanceof vscode.TabInputText ? input.uri : undefined;
    const candidates = [shown, ...(vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri)];
    for (const candidate of candidates) {
      if (candidate?.scheme === 'file') {
        const file = path.basename(candidate.fsPath) === 'trace.json' ? path.dirname(candidate.fsPath) : candidate.fsPath;
        if ((await traceAt(file)) !== undefined) {
          return file;
        }
      }
    }
    return undefined;
  }

  private opened(): string[] {
    return this.context.globalState.get<string[]>(OPENED, []);
  }

  /**
   * Returns the crashes of the collector, the traces of the workspace, and the traces opened
   * before.
   */
  private async recent(): Promise<{ trace: TraceFile; from: string }[]> {
    const spool = vscode.workspace.getConfiguration(DEBUG_TYPE).get<string>('spool', '');
    const found = new Map<string, { trace: TraceFile; from: string }>();
    const add = (from: string, traces: readonly (TraceFile | undefined)[]) => {
      for (const trace of traces) {
        if (trace !== undefined && !found.has(trace.path)) {
          found.set(trace.path, { trace, from });
        }
      }
    };
    if (path.isAbsolute(spool)) {
      add('collected', await tracesIn(spool));
    }
    for (const folder of vscode.workspace.workspaceFolders ?? []) {
      if (folder.uri.scheme === 'file') {
        add('in the workspace', [await traceAt(folder.uri.fsPath), ...(await tracesIn(folder.uri.fsPath))]);
      }
    }
    add('opened before', await Promise.all(this.opened().map(traceAt)));
    const order = newestFirst([...found.values()].map(({ trace }) => trace));
    return order.flatMap((trace) => found.get(trace.path) ?? []);
  }
}

/** Starts a session when a `.btz` file is opened. */
export class TraceEditor implements vscode.CustomReadonlyEditorProvider {
  constructor(private readonly traces: Traces) {}

  openCustomDocument(uri: vscode.Uri): vscode.CustomDocument {
    return { uri, dispose: () => undefined };
  }

  resolveCustomEditor(document: vscode.CustomDocument, panel: vscode.WebviewPanel): void {
    const name = path.basename(document.uri.path);
    panel.webview.options = { enableScripts: false, enableCommandUris: ['backtrail.debugResource'] };
    if (document.uri.scheme !== 'file') {
      panel.webview.html = page(name, 'Only files of this machine can be opened.');
      return;
    }
    panel.webview.html = page(name, 'Opening in the debugger…');
    // Only after VS Code has the editor, because it cannot be closed while it opens.
    void this.start(document.uri, (text) => {
      panel.webview.html = page(name, text);
    });
  }

  /** Starts the session, and closes the editor, which has no other content. */
  private async start(uri: vscode.Uri, say: (text: string) => void): Promise<void> {
    const isOpen = await this.traces.debug(uri.fsPath);
    const tab = vscode.window.tabGroups.all
      .flatMap((group) => group.tabs)
      .find(({ input }) => input instanceof vscode.TabInputCustom && input.uri.toString() === uri.toString());
    if (tab === undefined) {
      return;
    }
    if (isOpen) {
      await vscode.window.tabGroups.close(tab, true);
    } else {
      const again = `command:backtrail.debugResource?${encodeURIComponent(JSON.stringify([uri.toString()]))}`;
      say(`It was not opened. <a href="${again.replaceAll('"', '&quot;')}">Try again</a>`);
    }
  }
}

function page(name: string, text: string): string {
  const shown = name.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  return `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><title>${shown}</title></head>
<body><h1>${shown}</h1><p role="status">${text}</p></body></html>`;
}

/** Registers the commands that open traces. */
export function registerOpening(traces: Traces): vscode.Disposable {
  const open = async (ask: () => Promise<string | undefined>) => {
    const bundle = await ask();
    if (bundle !== undefined) {
      await traces.debug(bundle);
    }
  };
  return vscode.Disposable.from(
    vscode.commands.registerCommand('backtrail.openTrace', () => open(() => traces.askFile())),
    vscode.commands.registerCommand('backtrail.openRecent', () => open(() => traces.askRecent())),
    vscode.commands.registerCommand('backtrail.debugResource', async (given?: vscode.Uri | string) => {
      const uri = typeof given === 'string' ? vscode.Uri.parse(given) : given;
      if (uri === undefined || uri.scheme !== 'file') {
        return;
      }
      const file = path.basename(uri.fsPath) === 'trace.json' ? path.dirname(uri.fsPath) : uri.fsPath;
      if ((await traceAt(file)) === undefined) {
        report(`${path.basename(file)} is no trace: neither a .btz file nor a folder with a trace.json.`);
        return;
      }
      await traces.debug(file);
    }),
    vscode.window.registerCustomEditorProvider('backtrail.trace', new TraceEditor(traces)),
  );
}
