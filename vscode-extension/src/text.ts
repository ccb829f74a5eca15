/** Text of others as text: what VS Code must not make of it. */

/** Without a shape of their own: control characters, separators of lines, and what reverses the order of letters. */
const INVISIBLE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/**
 * A sentence for a message, a dialog, a prompt or a progress.
 *
 * VS Code makes links of `[text](command:...)` in these, and runs the command at a click. What they say may come from a trace, a file of
 * the workspace or a server: a blank breaks the link.
 */
export function plain(text: string): string {
  return text.replace(/[\r\n\t]+/g, ' ').replace(INVISIBLE, '\ufffd').replaceAll('](', '] (');
}
