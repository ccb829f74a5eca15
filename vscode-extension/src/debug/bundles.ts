/** Tells VS Code which folders of the workspace are bundles, so that the Explorer offers to debug those alone. */

import * as vscode from 'vscode';

/** More are not looked for. */
const MOST = 1000;

/** Keeps the context key `backtrail.bundleFolders` as the workspace is. */
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
