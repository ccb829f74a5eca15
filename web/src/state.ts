/** The state that all views of a page share. */

import type { Terms } from './describe';
import type { Keep } from './keep';
import type { Profile, Selection } from './model';
import type { Palette } from './theme';
import type { CallTree, Weights } from './tree';

/** The page around the component: a report, or a panel of an editor. */
export interface Host {
  /** Opens a source file. Line 0 is unknown. `undefined`: the page has no editor. */
  openSource?: (file: string, line: number) => void;
  /** Opens a position in the debugger. `undefined`: the page has no debugger. */
  openCall?: (position: string) => void;
  /** Gets each selection. */
  selected?: (selection: Selection) => void;
  /** The choices to begin with. */
  choices?: Choices;
  /** Gets each change of the choices. */
  chosen?: (choices: Choices) => void;
}

/** The choices of a user in the page, as a link has them. */
export interface Choices {
  /** The search. */
  find: string;
  keep: Keep;
  /** The id of the shown tab. */
  view: string;
}

/** The data that views read, and their requests to the page. */
export interface State {
  readonly profile: Profile;
  readonly host: Host;
  /** The call tree of the kept parts of stacks. */
  readonly tree: CallTree;
  /** The weights of the selected samples in it. */
  readonly weights: Weights;
  readonly terms: Terms;
  readonly palette: Palette;
  /** Whether each function matches the search. `undefined`: no search. */
  readonly matches: readonly boolean[] | undefined;
  /** Whether only matching functions are listed. */
  readonly listsMatches: boolean;
  /** Announces a text to screen readers. */
  say: (text: string) => void;
  /** Shows the callers and callees of a function. */
  selectFunction: (fn: number) => void;
  /** Opens the source of a function, if the page has an editor and the file is known. */
  openSource: (fn: number) => void;
}
