/** The running Backtrail sessions, and the active one. */

import * as vscode from 'vscode';
import { showError } from './messages';
import type { Bookmark, Requests, Trace, Where } from './protocol';

/** The debug type, as package.json registers it. */
export const DEBUG_TYPE = 'backtrail';

/** One debug session of ours. */
export class Session {
  /** The adapter's description of the trace, after its event. */
  trace: Trace | undefined;
  /** The last position that the adapter reported. */
  where: Where | undefined;
  /** Whether steps pass over library code. */
  justMyCode = true;

  constructor(readonly debug: vscode.DebugSession) {}

  /**
   * Returns whether older history is still being decoded in the background.
   *
   * A request that needs all history would block the adapter until then. Requests that the user did
   * not make must wait.
   */
  get isPartial(): boolean {
    return this.trace?.isPartial === true;
  }

  /** Sends a request of our own. */
  async request<Name extends keyof Requests>(name: Name, ...[given]: [Requests[Name][0]]): Promise<Requests[Name][1]> {
    return (await this.debug.customRequest(name, given)) as Requests[Name][1];
  }

  /** Returns the selected thread: that of the selected frame, otherwise the one that moved last. */
  get threadId(): number | undefined {
    const item = vscode.debug.activeStackItem;
    return item !== undefined && item.session.id === this.debug.id ? item.threadId : this.where?.threadId;
  }
}

/** Tracks our sessions, and reports events of the active one. */
export class Sessions implements vscode.Disposable {
  private readonly sessions = new Map<string, Session>();
  private readonly disposables: vscode.Disposable[] = [];
  private shown: Session | undefined;

  private readonly activeEmitter = new vscode.EventEmitter<Session | undefined>();
  private readonly movedEmitter = new vscode.EventEmitter<Session>();
  private readonly decodedEmitter = new vscode.EventEmitter<Session>();
  private readonly startedEmitter = new vscode.EventEmitter<Session>();
  private readonly endedEmitter = new vscode.EventEmitter<Session>();
  private readonly myCodeEmitter = new vscode.EventEmitter<Session>();
  private readonly bookmarksEmitter = new vscode.EventEmitter<{ session: Session; bookmarks: Bookmark[] }>();

  /** Another session is active, or none. */
  readonly onDidChangeActive = this.activeEmitter.event;
  /** The active session has moved, or more of its history is decoded. */
  readonly onDidMove = this.movedEmitter.event;
  /** The whole history of the active session is decoded; names of calls may change. */
  readonly onDidDecode = this.decodedEmitter.event;
  /** A session stopped for the first time, and accepts all requests. */
  readonly onDidStart = this.startedEmitter.event;
  readonly onDidEnd = this.endedEmitter.event;
  /** Steps of a session pass over library code from now on, or no longer. */
  readonly onDidChangeMyCode = this.myCodeEmitter.event;
  readonly onDidChangeBookmarks = this.bookmarksEmitter.event;

  constructor() {
    this.disposables.push(
      this.activeEmitter,
      this.movedEmitter,
      this.decodedEmitter,
      this.startedEmitter,
      this.endedEmitter,
      this.myCodeEmitter,
      this.bookmarksEmitter,
      vscode.debug.onDidStartDebugSession((debug) => this.add(debug)),
      vscode.debug.onDidTerminateDebugSession((debug) => this.remove(debug)),
      vscode.debug.onDidChangeActiveDebugSession(() => this.choose()),
      vscode.debug.onDidReceiveDebugSessionCustomEvent((event) => this.receive(event)),
    );
    if (vscode.debug.activeDebugSession !== undefined) {
      this.add(vscode.debug.activeDebugSession);
    }
  }

  /** Returns the active session. */
  get active(): Session | undefined {
    return this.shown;
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  private add(debug: vscode.DebugSession): Session | undefined {
    if (debug.type !== DEBUG_TYPE) {
      return undefined;
    }
    let session = this.sessions.get(debug.id);
    if (session === undefined) {
      session = new Session(debug);
      this.sessions.set(debug.id, session);
      this.choose();
    }
    return session;
  }

  private remove(debug: vscode.DebugSession): void {
    const session = this.sessions.get(debug.id);
    if (session !== undefined) {
      this.sessions.delete(debug.id);
      this.endedEmitter.fire(session);
      this.choose();
    }
  }

  /** Selects our active session, or our newest session if VS Code has no active session. */
  private choose(): void {
    const active = vscode.debug.activeDebugSession;
    const chosen = active === undefined ? [...this.sessions.values()].at(-1) : this.sessions.get(active.id);
    if (chosen !== this.shown) {
      this.shown = chosen;
      void vscode.commands.executeCommand('setContext', 'backtrail.active', chosen !== undefined);
      this.activeEmitter.fire(chosen);
    }
  }

  private receive(event: vscode.DebugSessionCustomEvent): void {
    const session = this.add(event.session);
    if (session === undefined) {
      return;
    }
    if (event.event === 'backtrail/moved') {
      const isFirst = session.where === undefined;
      session.where = event.body as Where;
      if (isFirst) {
        void this.start(session);
      } else if (session === this.shown) {
        this.movedEmitter.fire(session);
      }
      if (!isFirst && session.isPartial) {
        void this.checkDecoded(session);
      }
    } else if (event.event === 'backtrail/bookmarksChanged') {
      const { bookmarks } = event.body as { bookmarks: Bookmark[] };
      this.bookmarksEmitter.fire({ session, bookmarks });
    } else if (event.event === 'backtrail/justMyCodeChanged') {
      session.justMyCode = (event.body as { enabled: boolean }).enabled;
      this.myCodeEmitter.fire(session);
    }
  }

  /** Checks whether the whole trace is decoded. */
  private async checkDecoded(session: Session): Promise<void> {
    await this.readTrace(session);
    if (!session.isPartial && session === this.shown) {
      this.decodedEmitter.fire(session);
    }
  }

  private async readTrace(session: Session): Promise<void> {
    try {
      session.trace = await session.request('backtrail/trace', {});
      session.justMyCode = (await session.request('backtrail/justMyCode', {})).enabled;
    } catch {
      // Views that need history wait.
    }
  }

  private async start(session: Session): Promise<void> {
    await this.readTrace(session);
    this.startedEmitter.fire(session);
    if (session === this.shown) {
      this.movedEmitter.fire(session);
    }
  }
}

/** Shows the error of a request, unless the session has ended. */
export function report(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  if (text !== '' && !/^(Canceled|cancelled)$/i.test(text)) {
    void showError(text);
  }
}
