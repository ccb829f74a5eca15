/** Makes untrusted text safe for VS Code. */

/**
 * Invisible characters: control characters, line separators, and characters that change the text
 * direction.
 */
const INVISIBLE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/**
 * Returns a sentence for a message, a dialog, a prompt or a progress.
 *
 * VS Code turns `[text](command:...)` into a link that runs a command. The text may come from a
 * trace, a file of the workspace or a server. A space breaks the link.
 */
export function plain(text: string): string {
  return text.replace(/[\r\n\t]+/g, ' ').replace(INVISIBLE, '\ufffd').replaceAll('](', '] (');
}
