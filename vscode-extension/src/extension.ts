/** Wires the parts of the extension together. */

import * as vscode from 'vscode';
import { BookmarkStore } from './bookmarks/store';
import { BookmarksView } from './bookmarks/view';
import { registerCommands } from './commands';
import { AdapterFactory, AdapterWatch, locateProgram } from './debug/adapter';
import { watchBundles } from './debug/bundles';
import { ConfigurationProvider } from './debug/configuration';
import { Traces, registerOpening } from './debug/open';
import { revealDebugView } from './debug/reveal';
import { Coverage } from './editor/coverage';
import { InlineValues } from './editor/inlineValues';
import { HubAccount } from './hub/account';
import { RecentCrashesView } from './hub/view';
import { LinkHandler } from './link/open';
import { DEBUG_TYPE, Sessions } from './session';
import { CallsView } from './views/calls';
import { Comparisons } from './views/compare';
import { LatencyView } from './views/latency/provider';
import { Profiles } from './views/profile/panel';
import { TimelineView } from './views/timeline/provider';

/** VS Code calls this function once, when it first needs the extension. */
export function activate(context: vscode.ExtensionContext): void {
  const sessions = new Sessions();
  const traces = new Traces(context, locateProgram);
  const store = new BookmarkStore(sessions, context);
  const comparisons = new Comparisons();
  const latency = new LatencyView(sessions, context.extensionUri);
  const actions = {
    latency: (name: string) => latency.latency(name),
    compare: comparisons.compare.bind(comparisons),
  };
  const account = new HubAccount(context.secrets);
  const configurations = new ConfigurationProvider(traces, account);
  const dynamic = vscode.DebugConfigurationProviderTriggerKind.Dynamic;
  context.subscriptions.push(
    sessions,
    vscode.debug.registerDebugConfigurationProvider(DEBUG_TYPE, configurations),
    vscode.debug.registerDebugConfigurationProvider(DEBUG_TYPE, configurations, dynamic),
    vscode.debug.registerDebugAdapterDescriptorFactory(DEBUG_TYPE, new AdapterFactory(account)),
    vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, new AdapterWatch()),
    registerOpening(traces),
    watchBundles(),
    revealDebugView(sessions),
    registerCommands(sessions),
    vscode.window.registerUriHandler(new LinkHandler(context, traces, account)),
    account,
    new RecentCrashesView(account, traces),
    store,
    new BookmarksView(sessions, store),
    comparisons,
    latency,
    new CallsView(sessions, actions, context.globalState),
    new TimelineView(sessions, context.extensionUri),
    new Profiles(context.extensionUri, traces),
    new InlineValues(sessions),
    new Coverage(sessions, context.extensionUri),
  );
}
