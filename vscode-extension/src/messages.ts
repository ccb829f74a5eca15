/** Messages and prompts: the one place where VS Code is asked to show a sentence, so that none of them has links. */

import * as vscode from 'vscode';
import { plain } from './text';

type Shown = (message: string, options: vscode.MessageOptions, ...items: string[]) => Thenable<string | undefined>;

function message(shown: Shown): (text: string, options?: vscode.MessageOptions, ...items: string[]) => Thenable<string | undefined> {
  return (text, options = {}, ...items) => {
    const detail = options.detail === undefined ? {} : { detail: plain(options.detail) };
    return shown(plain(text), { ...options, ...detail }, ...items);
  };
}

/** An error. */
export const showError = message((text, options, ...items) => vscode.window.showErrorMessage(text, options, ...items));
/** A warning. */
export const showWarning = message((text, options, ...items) => vscode.window.showWarningMessage(text, options, ...items));
/** An information. */
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

/** Long work, with what it does. */
export function withProgress<Result>(
  options: vscode.ProgressOptions & { title: string },
  work: (progress: vscode.Progress<{ message?: string; increment?: number }>, token: vscode.CancellationToken) => Thenable<Result>,
): Thenable<Result> {
  return vscode.window.withProgress({ ...options, title: plain(options.title) }, work);
}
