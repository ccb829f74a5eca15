/** Completes launch configurations. */

import * as path from 'node:path';
import * as vscode from 'vscode';
import type { HubAccount } from '../hub/account';
import { refuse } from '../link/open';
import { isAllowed, originOf } from '../link/parse';
import { DEBUG_TYPE, report } from '../session';
import { program } from './adapter';
import type { Traces } from './open';
import { tracesIn } from './traces';

/** Adds the missing values of a configuration. */
export class ConfigurationProvider implements vscode.DebugConfigurationProvider {
  constructor(
    private readonly traces: Traces,
    private readonly account: HubAccount,
  ) {}

  /** Offers the traces in the workspace as configurations, without a launch.json. */
  async provideDebugConfigurations(folder: vscode.WorkspaceFolder | undefined): Promise<vscode.DebugConfiguration[]> {
    const traces = folder?.uri.scheme === 'file' ? await tracesIn(folder.uri.fsPath) : [];
    return traces.map((trace) => ({
      type: DEBUG_TYPE,
      request: 'launch',
      name: `Reverse debug ${path.basename(trace.path)}`,
      bundle: `\${workspaceFolder}/${path.basename(trace.path)}`,
    }));
  }

  async resolveDebugConfiguration(
    _folder: vscode.WorkspaceFolder | undefined,
    given: vscode.DebugConfiguration,
  ): Promise<vscode.DebugConfiguration | undefined> {
    const configuration: vscode.DebugConfiguration = { ...given };
    // F5 without a launch.json passes an empty configuration.
    if (!configuration.type) {
      configuration.type = DEBUG_TYPE;
      configuration.request = 'launch';
      const bundle = await this.traces.implied();
      if (bundle !== undefined) {
        configuration['bundle'] = bundle;
      }
    }
    if (configuration['bundle'] === undefined || configuration['bundle'] === '') {
      const bundle = await this.traces.askRecent();
      if (bundle === undefined) {
        return undefined;
      }
      configuration['bundle'] = bundle;
    }
    if (typeof configuration['bundle'] !== 'string') {
      report("The launch configuration's bundle must be a path or an address.");
      return undefined;
    }
    configuration['justMyCode'] ??= vscode.workspace.getConfiguration(DEBUG_TYPE).get<unknown>('justMyCode');
    configuration.name ||= `Backtrail: ${path.basename(configuration['bundle'])}`;
    return configuration;
  }

  /** Variables such as `${workspaceFolder}` are already replaced. */
  async resolveDebugConfigurationWithSubstitutedVariables(
    folder: vscode.WorkspaceFolder | undefined,
    given: vscode.DebugConfiguration,
  ): Promise<vscode.DebugConfiguration | undefined> {
    if (typeof given['debugServer'] !== 'number' && (await program()) === undefined) {
      return undefined;
    }
    const configuration: vscode.DebugConfiguration = { ...given };
    const bundle = String(configuration['bundle']);
    if (/^https?:/i.test(bundle)) {
      // A launch.json comes with its folder, and may only name servers that the user has allowed.
      // The adapter checks this too.
      const origin = originOf(bundle);
      const allowed = vscode.workspace.getConfiguration(DEBUG_TYPE).get<unknown>('allowedOrigins');
      if (origin === undefined) {
        report(`The trace ${bundle} is not fetched: only https addresses are, and http ones of this machine.`);
        return undefined;
      }
      if (!isAllowed(origin, allowed) && !this.account.isSignedInTo(origin)) {
        await refuse(origin, 'A launch configuration asks for a trace', 'start it');
        return undefined;
      }
    } else {
      const root = folder?.uri.scheme === 'file' ? folder.uri.fsPath : undefined;
      configuration['bundle'] = root === undefined ? path.resolve(bundle) : path.resolve(root, bundle);
      await this.traces.remember(String(configuration['bundle']));
    }
    return configuration;
  }
}
