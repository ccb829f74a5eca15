/** The messages between a profile's page and the extension. */

import type { CallKind } from '../../../../web/src/calls';
import type { ProfileData } from '../../../../web/src/data';
import type { Selection } from '../../../../web/src/model';

/** Messages to the page. */
export type ToPage = { type: 'data'; data: ProfileData } | { type: 'open'; kind: CallKind };

/** Messages from the page. */
export type FromPage =
  | { type: 'ready' }
  | { type: 'source'; file: string; line: number }
  | { type: 'call'; position: string }
  | { type: 'selected'; selection: Selection };
