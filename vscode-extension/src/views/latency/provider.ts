/** The latency view: sends the adapter's measurements to the page. */

import * as vscode from 'vscode';
import { askFunction } from '../../commands';
import { type Sessions, report } from '../../session';
import { setPage } from '../html';
import { type FromPage, type Query, ROWS, type ToPage } from './messages';
import { BODY, STYLE } from './page';

/** Fills the view when it is shown. */
export class LatencyView implements vscode.WebviewViewProvider, vscode.Disposable {
  private view: vscode.WebviewView | undefined;
  /** The current query, or the first one after the page is ready. */
  private query: Query | undefined;
  private round = 0;
  private readonly disposables: vscode.Disposable[];

  constructor(
    private readonly sessions: Sessions,
    private readonly extension: vscode.Uri,
  ) {
    this.disposables = [
      vscode.window.registerWebviewViewProvider('backtrail.latency', this, { webviewOptions: { retainContextWhenHidden: true } }),
      sessions.onDidChangeActive(() => this.reset()),
      sessions.onDidStart(() => this.reset()),
      vscode.commands.registerCommand('backtrail.latency', (name?: unknown) =>
        typeof name === 'string' ? this.latency(name) : this.choose(),
      ),
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
    view.webview.onDidReceiveMessage((message: FromPage) => void this.receive(message).catch(report));
    setPage(view.webview, this.extension, { title: 'Latency', script: 'latency.js', style: STYLE, body: BODY });
  }

  /** Shows the latency of a function. */
  async latency(name: string): Promise<void> {
    this.query = { function: name, instructions: false, sort: 'length', start: 0 };
    await vscode.commands.executeCommand('backtrail.latency.focus');
    await this.ask();
  }

  private async choose(): Promise<void> {
    const session = this.sessions.active;
    const name = session === undefined ? undefined : await askFunction(session, 'Show the latency of');
    if (name !== undefined) {
      await this.latency(name);
    }
  }

  private tell(message: ToPage): void {
    void this.view?.webview.postMessage(message);
  }

  private reset(): void {
    this.query = undefined;
    this.round += 1;
    this.tell({ type: 'reset', isOpen: this.sessions.active?.where !== undefined });
  }

  private async receive(message: FromPage): Promise<void> {
    const session = this.sessions.active;
    switch (message.type) {
      case 'ready':
        this.tell({ type: 'reset', isOpen: session?.where !== undefined });
        await this.ask();
        break;
      case 'query':
        this.query = message.query;
        await this.ask();
        break;
      case 'choose':
        await this.choose();
        break;
      case 'goto':
        await session?.request('backtrail/goto', { to: message.to });
        break;
      case 'compare': {
        const compared = await session?.request('backtrail/compare', { calls: message.calls });
        if (compared !== undefined) {
          this.tell({ type: 'compared', text: compared.text });
        }
        break;
      }
    }
  }

  /** Sends the current query, and ignores an outdated response. */
  private async ask(): Promise<void> {
    const { query } = this;
    const session = this.sessions.active;
    if (query === undefined || session === undefined || this.view === undefined) {
      return;
    }
    this.round += 1;
    const { round } = this;
    this.tell({ type: 'busy' });
    try {
      const latency = await session.request('backtrail/latency', { ...query, count: ROWS });
      if (round === this.round) {
        this.tell({ type: 'data', query, latency });
      }
    } catch (error) {
      if (round === this.round) {
        this.tell({ type: 'failed', text: error instanceof Error ? error.message : String(error) });
      }
    }
  }
}
