/**
 * Keeps the bookmarks of the active session synchronized in the workspace's file and in the
 * adapter.
 */

import * as path from 'node:path';
import * as vscode from 'vscode';
import type { Bookmark } from '../protocol';
import { type Session, type Sessions, report } from '../session';
import {
  LONGEST_FILE,
  type Mark,
  type MarksFile,
  difference,
  emptyMarks,
  marksOf,
  merged,
  parseMarks,
  printMarks,
  withMarks,
} from './file';

/** The bookmarks of the active session's trace. */
export class BookmarkStore implements vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChange = this.changed.event;
  private readonly disposables: vscode.Disposable[] = [this.changed];
  private watcher: vscode.Disposable | undefined;
  private session: Session | undefined;
  /** The file's bookmarks. */
  private kept: Mark[] = [];
  /** The adapter's bookmarks: the file's, and those of the launch configuration. */
  private adapterMarks: Bookmark[] = [];
  /** Runs changes in turn. */
  private queue: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly sessions: Sessions,
    private readonly context: vscode.ExtensionContext,
  ) {
    this.disposables.push(
      sessions.onDidStart((session) => this.begin(session)),
      sessions.onDidChangeActive((session) => this.begin(session)),
      sessions.onDidChangeBookmarks(({ session, bookmarks }) => {
        if (session === this.session) {
          this.enqueue(() => this.takeAdapterMarks(bookmarks));
        }
      }),
    );
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables, ...(this.watcher === undefined ? [] : [this.watcher])).dispose();
  }

  /** Returns the adapter's bookmarks with our notes. */
  get marks(): Mark[] {
    return this.adapterMarks.map(({ name, position }) => {
      const note = this.kept.find((mark) => mark.name === name)?.note;
      return { name, position, ...(note === undefined ? {} : { note }) };
    });
  }

  /** Returns the path of the file. */
  get file(): vscode.Uri {
    const folder = this.session?.debug.workspaceFolder ?? vscode.workspace.workspaceFolders?.[0];
    return folder === undefined
      ? vscode.Uri.joinPath(this.context.globalStorageUri, 'bookmarks.json')
      : vscode.Uri.joinPath(folder.uri, '.backtrail', 'bookmarks.json');
  }

  /** Applies a change to the adapter and the file. */
  change(edit: (marks: Mark[]) => Mark[]): Promise<void> {
    return this.enqueue(async () => {
      const after = edit(this.marks);
      await this.tell(after);
      await this.keep(merged(after, this.adapterMarks, this.configured()));
    });
  }

  /** Writes the file if it does not exist, and returns its path. */
  async written(): Promise<vscode.Uri> {
    const { file } = this;
    try {
      await vscode.workspace.fs.stat(file);
    } catch {
      await vscode.workspace.fs.writeFile(file, Buffer.from(printMarks(emptyMarks())));
    }
    return file;
  }

  private enqueue(act: () => Promise<void>): Promise<void> {
    const done = this.queue.then(act).catch(report);
    this.queue = done;
    return done;
  }

  private begin(session: Session | undefined): void {
    if (session === undefined || session !== this.sessions.active || session.trace === undefined) {
      if (session === undefined) {
        this.session = undefined;
        this.kept = [];
        this.adapterMarks = [];
        this.watcher?.dispose();
        this.watcher = undefined;
        this.changed.fire();
      }
      return;
    }
    if (session === this.session) {
      return;
    }
    this.session = session;
    this.kept = [];
    this.adapterMarks = [];
    this.watch();
    this.enqueue(() => this.takeFile());
  }

  private watch(): void {
    this.watcher?.dispose();
    const { file } = this;
    const watcher = vscode.workspace.createFileSystemWatcher(
      new vscode.RelativePattern(vscode.Uri.joinPath(file, '..'), 'bookmarks.json'),
    );
    const read = () => void this.enqueue(() => this.takeFile());
    this.watcher = vscode.Disposable.from(
      watcher,
      watcher.onDidChange(read),
      watcher.onDidCreate(read),
      watcher.onDidDelete(read),
    );
  }

  private configured(): Bookmark[] {
    const given = this.session?.debug.configuration['bookmarks'] as unknown;
    return Array.isArray(given) ? (given as Bookmark[]) : [];
  }

  /** Reads the file, and sends its changes to the adapter. */
  private async takeFile(): Promise<void> {
    const id = this.session?.trace?.id;
    if (id === undefined) {
      return;
    }
    const file = await this.read();
    if (file === undefined) {
      return;
    }
    const marks = marksOf(file, id);
    // Bookmarks that were deleted from the file are removed. Those that were never in the file are
    // unchanged.
    const gone = this.kept.filter(({ name }) => !marks.some((mark) => mark.name === name));
    const others = this.adapterMarks.filter(({ name }) => ![...gone, ...marks].some((mark) => mark.name === name));
    this.kept = marks;
    await this.tell([...others, ...marks]);
  }

  /** Stores the bookmarks that the adapter changed. */
  private async takeAdapterMarks(bookmarks: Bookmark[]): Promise<void> {
    const { remove, set } = difference(this.adapterMarks, bookmarks);
    if (remove.length > 0 || set.length > 0) {
      this.adapterMarks = bookmarks;
      await this.keep(merged(this.kept, bookmarks, this.configured()));
    }
  }

  private async tell(after: readonly Mark[]): Promise<void> {
    const { session } = this;
    if (session === undefined) {
      return;
    }
    const { remove, set } = difference(this.adapterMarks, after);
    const bookmarks = await send(session, remove, set);
    if (session === this.session) {
      this.adapterMarks = bookmarks;
      this.changed.fire();
    }
  }

  private async keep(marks: Mark[]): Promise<void> {
    const trace = this.session?.trace;
    const before = trace === undefined ? undefined : await this.read();
    this.kept = marks;
    if (trace !== undefined && before !== undefined) {
      const text = printMarks(withMarks(before, trace.id, path.basename(trace.name), marks));
      if (text !== printMarks(before)) {
        await vscode.workspace.fs.writeFile(this.file, Buffer.from(text));
      }
    }
    this.changed.fire();
  }

  /**
   * Reads the file. Returns `undefined` after an error, which is shown to the user. The file is not
   * overwritten then.
   */
  private async read(): Promise<MarksFile | undefined> {
    let bytes: Uint8Array;
    try {
      bytes = await vscode.workspace.fs.readFile(this.file);
    } catch {
      return emptyMarks();
    }
    const parsed =
      bytes.length > LONGEST_FILE ? { problem: 'it is too long' } : parseMarks(Buffer.from(bytes).toString('utf8'));
    if ('problem' in parsed) {
      report(`The bookmarks file ${this.file.fsPath} is not read: ${parsed.problem}.`);
      return undefined;
    }
    return parsed.file;
  }
}

/** Removes and sets bookmarks. Reports those that cannot be set, and sets the others. */
async function send(session: Session, remove: string[], set: readonly Mark[]): Promise<Bookmark[]> {
  const bare = set.map(({ name, position }) => ({ name, position }));
  const removal = remove.length === 0 ? {} : { remove };
  try {
    return (await session.request('backtrail/bookmarks', { ...removal, ...(bare.length === 0 ? {} : { set: bare }) })).bookmarks;
  } catch (error) {
    if (bare.length < 2) {
      throw error;
    }
  }
  for (const mark of bare) {
    try {
      await session.request('backtrail/bookmarks', { set: [mark] });
    } catch (error) {
      report(`Bookmark ${mark.name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return (await session.request('backtrail/bookmarks', removal)).bookmarks;
}
