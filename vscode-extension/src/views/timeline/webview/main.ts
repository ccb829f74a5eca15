/** The code of the timeline's page: connects the timeline to the extension. */

import type { FromPage, ToPage } from '../../../../../web/src/timeline/messages';
import { mount } from '../../../../../web/src/timeline/view';

declare function acquireVsCodeApi(): { postMessage(message: FromPage): void };

const vscode = acquireVsCodeApi();
const receive = mount((message) => vscode.postMessage(message));
window.addEventListener('message', ({ data }: MessageEvent<ToPage>) => receive(data));
vscode.postMessage({ type: 'ready' });
