/** The bookmarks as a list, and the commands on them. */

import * as vscode from 'vscode';
import { askText, showInformation } from '../messages';
import { type Sessions, report } from '../session';
import { type Mark, nameProblem } from './file';
import type { BookmarkStore } from './store';

/** Shows the list. */
export class BookmarksView implements vscode.TreeDataProvider<Mark>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly sessions: Sessions,
    private readonly store: BookmarkStore,
  ) {
    const view = vscode.window.createTreeView<Mark>('backtrail.bookmarks', { treeDataProvider: this });
    const command = (name: string, act: (mark: Mark | undefined) => Promise<unknown>) =>
      vscode.commands.registerCommand(`backtrail.${name}`, async (given?: Mark) => {
        try {
          await act(given ?? view.selection[0]);
        } catch (error) {
          report(error);
        }
      });
    const onMark = (name: string, act: (mark: Mark) => Promise<unknown>) =>
      command(`bookmarks.${name}`, async (mark) => (mark === undefined ? undefined : act(mark)));
    this.disposables = [
      view,
      this.changed,
      store.onDidChange(() => this.changed.fire()),
      sessions.onDidMove(() => this.changed.fire()),
      command('addBookmark', () => this.add()),
      command('goToBookmark', () => this.choose()),
      onMark('go', (mark) => this.go(mark)),
      onMark('rename', (mark) => this.rename(mark)),
      onMark('note', (mark) => this.note(mark)),
      onMark('remove', (mark) => store.change((marks) => marks.filter(({ name }) => name !== mark.name))),
      command('bookmarks.openFile', async () => vscode.window.showTextDocument(await store.written())),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  getChildren(mark?: Mark): Mark[] {
    return mark === undefined && this.sessions.active !== undefined ? this.store.marks : [];
  }

  getTreeItem(mark: Mark): vscode.TreeItem {
    const isHere = mark.position === this.sessions.active?.where?.position;
    const item = new vscode.TreeItem(mark.name);
    item.contextValue = 'bookmark';
    item.description = [mark.position, mark.note].filter((part) => part !== undefined).join('  ');
    item.tooltip = [`${mark.name}  [${mark.position}]`, mark.note].filter((part) => part !== undefined).join('\n\n');
    item.iconPath = new vscode.ThemeIcon(isHere ? 'debug-stackframe' : 'bookmark');
    item.command = { command: 'backtrail.bookmarks.go', title: 'Go There', arguments: [mark] };
    const label = [`Bookmark ${mark.name}`, mark.position, mark.note, isHere ? 'you are here' : undefined];
    item.accessibilityInformation = { label: label.filter((part) => part !== undefined).join(', ') };
    return item;
  }

  private async go(mark: Mark): Promise<void> {
    await this.sessions.active?.request('backtrail/goto', { to: mark.position });
  }

  private async add(): Promise<void> {
    const session = this.sessions.active;
    if (session === undefined) {
      return;
    }
    const { position, function: standing, line } = await session.request('backtrail/where', {});
    const place = standing ?? 'here';
    const name = await this.askName(line === undefined ? place : `${place} line ${line}`, undefined);
    if (name !== undefined) {
      await this.store.change((marks) => [...marks, { name, position }]);
    }
  }

  private async rename(mark: Mark): Promise<void> {
    const name = await this.askName(mark.name, mark.name);
    if (name !== undefined && name !== mark.name) {
      await this.store.change((marks) => marks.map((one) => (one.name === mark.name ? { ...one, name } : one)));
    }
  }

  private async note(mark: Mark): Promise<void> {
    const note = await askText({ title: `Note on ${mark.name}`, value: mark.note ?? '' });
    if (note !== undefined) {
      const { note: _, ...bare } = mark;
      const noted: Mark = note.trim() === '' ? bare : { ...bare, note: note.trim() };
      await this.store.change((marks) => marks.map((one) => (one.name === mark.name ? noted : one)));
    }
  }

  private async askName(proposed: string, own: string | undefined): Promise<string | undefined> {
    const taken = this.store.marks.map(({ name }) => name).filter((name) => name !== own);
    const name = await askText({
      title: own === undefined ? 'Add a bookmark here' : `Rename ${own}`,
      prompt: 'Its name',
      value: proposed,
      validateInput: (value) => nameProblem(value, taken),
    });
    return name?.trim();
  }

  private async choose(): Promise<void> {
    const items = this.store.marks.map((mark) => ({
      label: mark.name,
      description: mark.position,
      ...(mark.note === undefined ? {} : { detail: mark.note }),
      mark,
    }));
    if (items.length === 0) {
      void showInformation('This trace has no bookmarks yet.');
      return;
    }
    const chosen = await vscode.window.showQuickPick(items, {
      title: 'Go to a bookmark',
      matchOnDescription: true,
      matchOnDetail: true,
    });
    if (chosen !== undefined) {
      await this.go(chosen.mark);
    }
  }
}
