/**
 * Reports the bundle folders of the workspace to VS Code, so that the Explorer offers to debug only
 * those.
 */

import * as vscode from 'vscode';

/** The maximum number of bundles. */
const MOST = 1000;

/** Updates the context key `backtrail.bundleFolders` after changes of the workspace. */
export function watchBundles(): vscode.Disposable {
  const folders = new Set<string>();
  const tell = () => void vscode.commands.executeCommand('setContext', 'backtrail.bundleFolders', [...folders]);
  const folderOf = (manifest: vscode.Uri) => vscode.Uri.joinPath(manifest, '..').fsPath;
  const watcher = vscode.workspace.createFileSystemWatcher('**/trace.json', false, true, false);
  const search = async () => {
    for (const manifest of await vscode.workspace.findFiles('**/trace.json', '**/node_modules/**', MOST)) {
      folders.add(folderOf(manifest));
    }
    tell();
  };
  void search();
  return vscode.Disposable.from(
    watcher,
    watcher.onDidCreate((manifest) => {
      folders.add(folderOf(manifest));
      tell();
    }),
    watcher.onDidDelete((manifest) => {
      folders.delete(folderOf(manifest));
      tell();
    }),
    vscode.workspace.onDidChangeWorkspaceFolders(() => void search()),
  );
}
