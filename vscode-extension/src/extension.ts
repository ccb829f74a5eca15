/** Wires the parts of the extension together. */

import * as vscode from 'vscode';
import { registerCommands } from './commands';
import { AdapterFactory, AdapterWatch } from './debug/adapter';
import { ConfigurationProvider } from './debug/configuration';
import { Traces, registerOpening } from './debug/open';
import { DEBUG_TYPE, Sessions } from './session';

/** VS Code calls it once, when something of ours is wanted first. */
export function activate(context: vscode.ExtensionContext): void {
  const sessions = new Sessions();
  const traces = new Traces(context);
  const configurations = new ConfigurationProvider(traces);
  const dynamic = vscode.DebugConfigurationProviderTriggerKind.Dynamic;
  context.subscriptions.push(
    sessions,
    vscode.debug.registerDebugConfigurationProvider(DEBUG_TYPE, configurations),
    vscode.debug.registerDebugConfigurationProvider(DEBUG_TYPE, configurations, dynamic),
    vscode.debug.registerDebugAdapterDescriptorFactory(DEBUG_TYPE, new AdapterFactory()),
    vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, new AdapterWatch()),
    registerOpening(traces),
    registerCommands(sessions),
  );
}
