/**
 * The timeline view: sends the page's newest query to the adapter, and its response to the page.
 */

import * as vscode from 'vscode';
import { type Sessions, report } from '../../session';
import type { FromPage, ToPage } from '../../../../web/src/timeline/messages';
import { setPage } from '../html';
import { BODY, STYLE } from './page';

/** The number of requested levels of calls. */
const DEPTH = 64;

type Wish = Extract<FromPage, { type: 'want' }>;

/** Fills the view when it is shown. */
export class TimelineView implements vscode.WebviewViewProvider, vscode.Disposable {
  private view: vscode.WebviewView | undefined;
  private wish: Wish | undefined;
  private isAsking = false;
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly sessions: Sessions,
    private readonly extension: vscode.Uri,
  ) {
    const command = (name: string, action: Extract<ToPage, { type: 'command' }>['command']) =>
      vscode.commands.registerCommand(`backtrail.timeline.${name}`, () => this.tell({ type: 'command', command: action }));
    this.disposables = [
      vscode.window.registerWebviewViewProvider('backtrail.timeline', this, { webviewOptions: { retainContextWhenHidden: true } }),
      sessions.onDidChangeActive(() => this.reset()),
      sessions.onDidStart(() => this.reset()),
      sessions.onDidDecode(() => this.reset()),
      sessions.onDidMove(() => this.tell({ type: 'moved' })),
      command('zoomIn', 'zoomIn'),
      command('zoomOut', 'zoomOut'),
      command('fit', 'fit'),
      command('here', 'here'),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.disposables).dispose();
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.view = view;
    view.onDidDispose(() => {
      this.view = undefined;
    });
    view.onDidChangeVisibility(() => this.tell({ type: 'moved' }));
    view.webview.onDidReceiveMessage((message: FromPage) => this.receive(message));
    setPage(view.webview, this.extension, { title: 'Timeline', script: 'timeline.js', style: STYLE, body: BODY });
  }

  private tell(message: ToPage): void {
    // A hidden page queries again when it becomes visible.
    if (this.view !== undefined && (this.view.visible || message.type === 'reset')) {
      void this.view.webview.postMessage(message);
    }
  }

  private reset(): void {
    this.wish = undefined;
    const session = this.sessions.active;
    const state = session?.where === undefined ? 'closed' : session.isPartial ? 'decoding' : 'open';
    this.tell({ type: 'reset', state });
  }

  private receive(message: FromPage): void {
    switch (message.type) {
      case 'ready':
        this.reset();
        break;
      case 'want':
        this.wish = message;
        void this.ask();
        break;
      case 'goto':
        this.sessions.active?.request('backtrail/goto', { to: message.to }).catch(report);
        break;
    }
  }

  /** Sends one query at a time, and drops outdated ones. */
  private async ask(): Promise<void> {
    if (this.isAsking) {
      return;
    }
    this.isAsking = true;
    try {
      for (let wish = this.wish; wish !== undefined; wish = this.wish) {
        this.wish = undefined;
        await this.answer(wish);
      }
    } finally {
      this.isAsking = false;
    }
  }

  private async answer({ request, from, to, width }: Wish): Promise<void> {
    const session = this.sessions.active;
    if (session?.where === undefined || session.isPartial) {
      return;
    }
    try {
      const timeline = await session.request('backtrail/timeline', {
        ...(from === undefined ? {} : { from }),
        ...(to === undefined ? {} : { to }),
        width,
        depth: DEPTH,
      });
      if (session === this.sessions.active) {
        this.tell({ type: 'data', request, timeline });
      }
    } catch (error) {
      this.tell({ type: 'failed', request, text: error instanceof Error ? error.message : String(error) });
    }
  }
}
