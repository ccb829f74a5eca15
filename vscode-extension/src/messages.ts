/**
 * Messages and prompts: the only module that shows sentences in VS Code, so that none contains
 * links.
 */

import * as vscode from 'vscode';
import { plain } from './text';

type Shown = (message: string, options: vscode.MessageOptions, ...items: string[]) => Thenable<string | undefined>;

function message(shown: Shown): (text: string, options?: vscode.MessageOptions, ...items: string[]) => Thenable<string | undefined> {
  return (text, options = {}, ...items) => {
    const detail = options.detail === undefined ? {} : { detail: plain(options.detail) };
    return shown(plain(text), { ...options, ...detail }, ...items);
  };
}

/** Shows an error. */
export const showError = message((text, options, ...items) => vscode.window.showErrorMessage(text, options, ...items));
/** Shows a warning. */
export const showWarning = message((text, options, ...items) => vscode.window.showWarningMessage(text, options, ...items));
/** Shows information. */
export const showInformation = message((text, options, ...items) =>
  vscode.window.showInformationMessage(text, options, ...items),
);

/** Asks for a line of text. */
export function askText(options: vscode.InputBoxOptions): Thenable<string | undefined> {
  const { title, prompt } = options;
  return vscode.window.showInputBox({
    ...options,
    ...(title === undefined ? {} : { title: plain(title) }),
    ...(prompt === undefined ? {} : { prompt: plain(prompt) }),
  });
}

/** Shows progress of long work. */
export function withProgress<Result>(
  options: vscode.ProgressOptions & { title: string },
  work: (progress: vscode.Progress<{ message?: string; increment?: number }>, token: vscode.CancellationToken) => Thenable<Result>,
): Thenable<Result> {
  return vscode.window.withProgress({ ...options, title: plain(options.title) }, work);
}
