/** The profile's page: the component of reports, with an editor to open sources in. */

import { mount } from '../../../../../web/src/page';
import type { FromPage, ToPage } from '../messages';

declare function acquireVsCodeApi(): { postMessage(message: FromPage): void };

const vscode = acquireVsCodeApi();
const root = document.getElementById('root');

window.addEventListener('message', ({ data: message }: MessageEvent<ToPage>) => {
  if (message.type === 'data' && root !== null) {
    mount(root, message.data, {
      openSource: (file, line) => vscode.postMessage({ type: 'source', file, line }),
      selected: (selection) => vscode.postMessage({ type: 'selected', selection }),
    });
  }
});
vscode.postMessage({ type: 'ready' });
