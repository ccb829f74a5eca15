/** The page of a webview: only its own code may load or run there. */

import { randomBytes } from 'node:crypto';
import * as vscode from 'vscode';

/** The parts of a webview's page. */
export interface Page {
  title: string;
  /** The bundle of its code, in `dist`. */
  script: string;
  style: string;
  body: string;
}

/** Sets the page of a webview. */
export function setPage(webview: vscode.Webview, extension: vscode.Uri, page: Page): void {
  const dist = vscode.Uri.joinPath(extension, 'dist');
  webview.options = { enableScripts: true, localResourceRoots: [dist] };
  const nonce = randomBytes(18).toString('base64');
  const script = webview.asWebviewUri(vscode.Uri.joinPath(dist, page.script)).toString();
  webview.html = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; worker-src blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${page.title}</title>
<style nonce="${nonce}">${page.style}</style>
</head>
<body>
${page.body}
<script nonce="${nonce}" src="${script}"></script>
</body>
</html>`;
}
