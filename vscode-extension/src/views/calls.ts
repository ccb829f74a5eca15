/** The call history: the calls of the thread, as a tree that is loaded when it is unfolded. */

import * as vscode from 'vscode';
import { CALLS_AT_ONCE, type Call } from '../protocol';
import { type Session, type Sessions, report } from '../session';
import { Pages } from './pages';

/** The view follows when the debugger has not moved for this time, in milliseconds. */
const STILL = 120;

/** Whether the view was unfolded once. */
const SHOWN = 'backtrail.callsShown';

/** A call in the tree. */
export class CallNode {
  readonly kind = 'call';
  pages: Pages<CallNode> | undefined;

  constructor(
    public call: Call,
    readonly parent: CallNode | undefined,
  ) {}
}

/** Calls that are not loaded yet. */
interface MoreNode {
  kind: 'more';
  parent: CallNode | undefined;
  from: number;
  to: number;
  end: 'first' | 'last';
}

type Node = CallNode | MoreNode;

/** Actions of a call's context menu outside this view. */
export interface CallActions {
  latency(name: string): Promise<void>;
  compare(session: Session, calls: readonly Call[]): Promise<void>;
}

/** The tree, which follows the debugger's position. */
export class CallsView implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<Node | undefined>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly view: vscode.TreeView<Node>;
  private readonly disposables: vscode.Disposable[];
  /** The calls at the beginning of history. */
  private root = new Pages<CallNode>(CALLS_AT_ONCE);
  private session: Session | undefined;
  private threadId: number | undefined;
  /** Whether requests wait until older history is decoded. */
  private waits = false;
  private path: CallNode[] = [];
  /** The number of moves: earlier requests are outdated. */
  private round = 0;

  constructor(
    private readonly sessions: Sessions,
    private readonly actions: CallActions,
    memory: vscode.Memento,
  ) {
    this.view = vscode.window.createTreeView<Node>('backtrail.calls', {
      treeDataProvider: this,
      canSelectMany: true,
      showCollapseAll: true,
    });
    const command = (name: string, act: (node: Node, all?: Node[]) => unknown) =>
      vscode.commands.registerCommand(`backtrail.calls.${name}`, async (node: Node, all?: Node[]) => {
        try {
          await act(node, all);
        } catch (error) {
          report(error);
        }
      });
    this.disposables = [
      this.view,
      this.changed,
      sessions.onDidChangeActive(() => this.restart()),
      sessions.onDidMove((session) => {
        // Unfolds the view only the first time.
        void this.follow(session, !memory.get(SHOWN, false));
        void memory.update(SHOWN, true);
      }),
      sessions.onDidDecode((session) => {
        this.forget();
        this.wait(false);
        void this.follow(session, false);
      }),
      vscode.debug.onDidChangeActiveStackItem(() => this.changeThread()),
      this.view.onDidChangeVisibility(({ visible }) => {
        if (visible && this.session !== undefined) {
          void this.follow(this.session, false);
        }
      }),
      command('go', (node) => this.go(node)),
      command('more', (node) => this.more(node)),
      command('reveal', () => this.session && this.follow(this.session, true)),
      command('latency', (node) => (node instanceof CallNode ? actions.latency(node.call.function) : undefined)),
      command('compare', (node, all) => this.compare(node, all)),
      command('copyPosition', (node) => this.copyPosition(node)),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  getParent(node: Node): CallNode | undefined {
    return node.parent;
  }

  async getChildren(node?: Node): Promise<Node[]> {
    if (this.waits || this.session?.where === undefined || (node !== undefined && !(node instanceof CallNode))) {
      return [];
    }
    const round = this.round;
    try {
      const pages = await this.load(node, 0);
      return pages.slots().map((slot) => ('item' in slot ? slot.item : { kind: 'more', parent: node, ...slot }));
    } catch (error) {
      if (round === this.round) {
        report(error);
      }
      return [];
    }
  }

  getTreeItem(node: Node): vscode.TreeItem {
    return node instanceof CallNode ? this.callItem(node) : moreItem(node);
  }

  private callItem(node: CallNode): vscode.TreeItem {
    const { call } = node;
    const isAround = this.path.includes(node);
    const isHere = this.path.at(-1) === node;
    const item = new vscode.TreeItem(
      call.function,
      call.children > 0 ? vscode.TreeItemCollapsibleState.Collapsed : vscode.TreeItemCollapsibleState.None,
    );
    // Many calls have the same name, so VS Code needs an id to distinguish them.
    item.id = `${this.threadId}:${node.parent?.call.call}>${call.call}:${call.number}`;
    item.contextValue = 'call';
    const icon = isHere ? 'debug-stackframe' : isAround ? 'debug-stackframe-dot' : 'symbol-method';
    const gray = call.library === undefined ? undefined : new vscode.ThemeColor('disabledForeground');
    item.iconPath = new vscode.ThemeIcon(icon, gray);
    item.command = { command: 'backtrail.calls.go', title: 'Go There', arguments: [node] };
    item.description = [
      call.duration?.text ?? `${call.instructions.toLocaleString()} instructions`,
      call.time?.text === undefined ? undefined : `at ${call.time.text}`,
    ]
      .filter((part) => part !== undefined)
      .join(', ');
    item.tooltip = tooltip(call);
    const place = isHere ? ', the position is in it' : isAround ? ', the position is below it' : '';
    const made = call.children === 0 ? '' : `, made ${callsMade(call)}`;
    item.accessibilityInformation = { label: `${call.function}, ${item.description}${made}${place}` };
    return item;
  }

  /** Loads a page of a call's callees, if it is missing. */
  private async load(node: CallNode | undefined, page: number): Promise<Pages<CallNode>> {
    const session = this.session;
    if (session === undefined) {
      throw new Error('The session is over.');
    }
    if (node !== undefined) {
      node.pages ??= new Pages<CallNode>(CALLS_AT_ONCE);
    }
    const pages = node?.pages ?? this.root;
    await pages.load(page, async () => {
      const { calls, total } = await session.request('backtrail/calls', {
        ...(this.threadId === undefined ? {} : { threadId: this.threadId }),
        ...(node === undefined ? {} : { parent: node.call.call }),
        start: page * CALLS_AT_ONCE,
        count: CALLS_AT_ONCE,
      });
      return { items: calls.map((call) => new CallNode(call, node)), total };
    });
    return pages;
  }

  private forget(): void {
    this.round += 1;
    this.root = new Pages<CallNode>(CALLS_AT_ONCE);
    this.path = [];
    this.changed.fire(undefined);
  }

  private restart(): void {
    this.session = undefined;
    this.threadId = undefined;
    this.wait(false);
    this.view.description = '';
    this.forget();
    const active = this.sessions.active;
    if (active?.where !== undefined) {
      void this.follow(active, false);
    }
  }

  private wait(waits: boolean): void {
    if (waits !== this.waits) {
      this.waits = waits;
      this.changed.fire(undefined);
    }
    this.view.message = waits ? 'Older history is being decoded. The target above shows the calls as soon as it is.' : '';
  }

  private changeThread(): void {
    const { session } = this;
    if (session !== undefined && session.threadId !== undefined && session.threadId !== this.threadId) {
      void this.follow(session, false);
    }
  }

  /** Selects the call that contains the position. */
  private async follow(session: Session, isAsked: boolean): Promise<void> {
    const { threadId, where } = session;
    if (session !== this.sessions.active || where === undefined) {
      return;
    }
    if (session !== this.session || threadId !== this.threadId) {
      this.session = session;
      this.threadId = threadId;
      this.forget();
    }
    this.wait(session.isPartial && (this.waits || this.path.length === 0) && !isAsked);
    this.view.description = threadId === undefined ? '' : `thread ${threadId}`;
    if (this.waits || (!this.view.visible && !isAsked)) {
      // The tree is loaded after the view becomes visible.
      return;
    }
    this.round += 1;
    const { round } = this;
    try {
      const given = threadId === undefined ? {} : { threadId };
      if (!isAsked) {
        // A fast sequence of steps does not wait for a request after each.
        await new Promise((resolve) => setTimeout(resolve, STILL));
        if (round !== this.round) {
          return;
        }
      }
      const { path } = await session.request('backtrail/callPath', given);
      const nodes = round === this.round ? await this.nodesOf(path, round) : undefined;
      if (nodes === undefined) {
        return;
      }
      const before = this.path;
      this.path = nodes;
      const differs = nodes.findIndex((node, at) => node !== before[at]);
      const kept = differs < 0 ? nodes.length : differs;
      if (kept < before.length || kept < nodes.length) {
        // All changes are below the last call that both paths share.
        this.changed.fire(nodes[kept - 1]);
      }
      const here = nodes.at(-1);
      if (here !== undefined && (this.view.visible || isAsked)) {
        await this.view.reveal(here, { select: true, focus: false });
      }
    } catch (error) {
      if (isAsked) {
        report(error);
      }
    }
  }

  /** Returns the nodes of a path, and loads the pages that contain them. */
  private async nodesOf(path: readonly Call[], round: number): Promise<CallNode[] | undefined> {
    const nodes: CallNode[] = [];
    for (const call of path) {
      const parent = nodes.at(-1);
      const pages = await this.load(parent, Math.floor(call.number / CALLS_AT_ONCE));
      if (round !== this.round) {
        return undefined;
      }
      const node = pages.at(call.number);
      if (node === undefined || node.call.function !== call.function) {
        break;
      }
      node.call = call;
      nodes.push(node);
    }
    return nodes;
  }

  private async go(node: Node): Promise<void> {
    if (node instanceof CallNode) {
      await this.session?.request('backtrail/goto', { to: node.call.position });
    }
  }

  private async more(node: Node): Promise<void> {
    if (!(node instanceof CallNode)) {
      const pages = node.parent === undefined ? this.root : node.parent.pages;
      if (pages !== undefined) {
        await this.load(node.parent, pages.pageFor(node));
        this.changed.fire(node.parent);
      }
    }
  }

  private async compare(node: Node, all: readonly Node[] | undefined): Promise<void> {
    const chosen = [...(all ?? this.view.selection)].filter((one) => one instanceof CallNode);
    const calls = chosen.length === 2 && chosen.includes(node as CallNode) ? chosen : [node];
    if (this.session !== undefined) {
      await this.actions.compare(this.session, calls.filter((one) => one instanceof CallNode).map((one) => one.call));
    }
  }

  private async copyPosition(node: Node): Promise<void> {
    if (node instanceof CallNode) {
      await vscode.env.clipboard.writeText(node.call.position);
      vscode.window.setStatusBarMessage(`Copied ${node.call.position}`, 3000);
    }
  }
}

function moreItem(node: MoreNode): vscode.TreeItem {
  const count = (node.to - node.from).toLocaleString();
  const way = node.end === 'first' ? 'more…' : 'before, show the last of them…';
  const item = new vscode.TreeItem(`${count} ${way}`);
  item.iconPath = new vscode.ThemeIcon(node.end === 'first' ? 'fold-down' : 'fold-up');
  item.command = { command: 'backtrail.calls.more', title: 'Show More Calls', arguments: [node] };
  item.tooltip = `Calls ${node.from.toLocaleString()} to ${(node.to - 1).toLocaleString()} are not loaded.`;
  item.accessibilityInformation = { label: `${count} calls are not shown: show more of them`, role: 'button' };
  return item;
}

function callsMade({ children }: Call): string {
  return `${children.toLocaleString()} call${children === 1 ? '' : 's'}`;
}

/** Returns the details of a call, one per line. */
function tooltip(call: Call): string {
  const source = call.file === undefined ? undefined : `${call.file}:${call.line ?? '?'}`;
  return [
    `${call.function}  [${call.call} ${call.position}]`,
    source,
    call.library === undefined ? undefined : `code of ${call.library}`,
    call.time === undefined ? undefined : `began at ${call.time.text}`,
    call.duration === undefined ? undefined : `took ${call.duration.text}`,
    `${call.instructions.toLocaleString()} instructions, ${callsMade(call)}`,
    call.entered === undefined ? undefined : `entered: ${call.entered}`,
    call.left === undefined ? undefined : `left: ${call.left}`,
  ]
    .filter((line) => line !== undefined)
    .join('\n');
}
