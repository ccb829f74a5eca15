/** The messages between a profile's page and the extension. */

import type { ProfileData } from '../../../../web/src/data';
import type { Selection } from '../../../../web/src/model';

/** Messages to the page. */
export type ToPage = { type: 'data'; data: ProfileData };

/** Messages from the page. */
export type FromPage =
  | { type: 'ready' }
  | { type: 'source'; file: string; line: number }
  | { type: 'selected'; selection: Selection };
