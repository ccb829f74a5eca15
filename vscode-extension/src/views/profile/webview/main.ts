/** The profile's page: the component of reports, with an editor to open sources in. */

import type { CallKind } from '../../../../../web/src/calls';
import { mount } from '../../../../../web/src/page';
import type { FromPage, ToPage } from '../messages';

declare function acquireVsCodeApi(): { postMessage(message: FromPage): void };

const vscode = acquireVsCodeApi();
const root = document.getElementById('root');
let openCall: ((kind: CallKind) => void) | undefined;

window.addEventListener('message', ({ data: message }: MessageEvent<ToPage>) => {
  if (message.type === 'open') {
    openCall?.(message.kind);
  } else if (root !== null) {
    // The condition of the menu on frames.
    root.dataset.vscodeContext = JSON.stringify({ preventDefaultContextMenuItems: true, hasCalls: message.data.calls !== null });
    ({ openCall } = mount(root, message.data, {
      openSource: (file, line) => vscode.postMessage({ type: 'source', file, line }),
      openCall: (position) => vscode.postMessage({ type: 'call', position }),
      selected: (selection) => vscode.postMessage({ type: 'selected', selection }),
    }));
  }
});
vscode.postMessage({ type: 'ready' });
