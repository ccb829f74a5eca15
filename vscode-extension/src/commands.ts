/** The commands for moves that VS Code has no buttons for. */

import * as vscode from 'vscode';
import { askText } from './messages';
import type { Requests, Where } from './protocol';
import { type Session, type Sessions, report } from './session';

type Steps = 'backtrail/reverseStepIn' | 'backtrail/reverseStepOut';
type Granularity = NonNullable<Requests[Steps][0]['granularity']>;

/** Registers the commands. */
export function registerCommands(sessions: Sessions): vscode.Disposable {
  const command = (name: string, act: (session: Session, argument: unknown) => Promise<unknown>) =>
    vscode.commands.registerCommand(`backtrail.${name}`, async (argument: unknown) => {
      const session = sessions.active;
      if (session === undefined) {
        report('No trace is open: Backtrail: Open Trace… opens one.');
        return;
      }
      try {
        await act(session, argument);
      } catch (error) {
        report(error);
      }
    });
  return vscode.Disposable.from(
    command('reverseStepIn', (session, argument) => step(session, 'backtrail/reverseStepIn', granularity(argument))),
    command('reverseStepOut', (session) => step(session, 'backtrail/reverseStepOut')),
    command('reverseStepInstruction', (session) => step(session, 'backtrail/reverseStepIn', 'instruction')),
    command('goToStart', (session) => session.request('backtrail/goto', { to: 'start' })),
    command('goToCrash', (session) => session.request('backtrail/goto', { to: 'crash' })),
    command('goToPosition', goToPosition),
    command('copyPosition', copyPosition),
    command('back', (session) => session.request('backtrail/back', {})),
    command('forward', (session) => session.request('backtrail/forward', {})),
    command('justMyCodeOn', (session) => session.request('backtrail/justMyCode', { enabled: true })),
    command('justMyCodeOff', (session) => session.request('backtrail/justMyCode', { enabled: false })),
    command('lastWrite', (session, argument) => goToWrite(session, argument, 'backward')),
    command('nextWrite', (session, argument) => goToWrite(session, argument, 'forward')),
    command('runToPreviousCall', (session) => runToCall(session, 'backward')),
    command('runToNextCall', (session) => runToCall(session, 'forward')),
    position(sessions),
    showMyCode(sessions),
    showValues(sessions),
  );
}

function granularity(argument: unknown): Granularity | undefined {
  const asked = (argument as { granularity?: unknown } | undefined)?.granularity;
  return asked === 'instruction' ? 'instruction' : undefined;
}

function step(session: Session, verb: Steps, size?: Granularity): Promise<unknown> {
  const threadId = session.threadId;
  return session.request(verb, {
    ...(threadId === undefined ? {} : { threadId }),
    ...(size === undefined ? {} : { granularity: size }),
  });
}

async function goToPosition(session: Session): Promise<void> {
  const to = await askText({
    title: 'Go to a position',
    prompt: 'A position (t12#345, #-120), a time (@-1.5ms), a call (c17), a bookmark, start, end or crash',
    value: session.where?.position ?? '',
  });
  if (to !== undefined && to.trim() !== '') {
    await session.request('backtrail/goto', { to: to.trim() });
  }
}

async function copyPosition(session: Session): Promise<void> {
  const { position } = await session.request('backtrail/where', {});
  await vscode.env.clipboard.writeText(position);
  vscode.window.setStatusBarMessage(`Copied ${position}`, 3000);
}

async function runToCall(session: Session, direction: 'backward' | 'forward'): Promise<void> {
  const title = `Run to the ${direction === 'backward' ? 'previous' : 'next'} call of`;
  const name = await askFunction(session, title);
  if (name !== undefined) {
    const threadId = session.threadId;
    await session.request('backtrail/runToCall', {
      function: name,
      direction,
      ...(threadId === undefined ? {} : { threadId }),
    });
  }
}

/** Goes to the nearest write of a variable: of the view's, or of the selected text. */
async function goToWrite(session: Session, argument: unknown, direction: 'backward' | 'forward'): Promise<void> {
  const expression = expressionOf(argument) ?? (await askExpression(direction));
  const frame = vscode.debug.activeStackItem;
  const frameId = frame instanceof vscode.DebugStackFrame ? frame.frameId : undefined;
  if (expression !== undefined) {
    await session.request('backtrail/lastWrite', {
      expression,
      direction,
      ...(frameId === undefined ? {} : { frameId }),
    });
  }
}

/** The expression of an item in the views of variables and watches. */
function expressionOf(argument: unknown): string | undefined {
  const item = argument as { variable?: { evaluateName?: unknown; name?: unknown }; expression?: unknown } | undefined;
  const found = item?.variable?.evaluateName ?? item?.variable?.name ?? item?.expression;
  return typeof found === 'string' && found !== '' ? found : undefined;
}

async function askExpression(direction: 'backward' | 'forward'): Promise<string | undefined> {
  const editor = vscode.window.activeTextEditor;
  const selected = editor?.document.getText(editor.selection) ?? '';
  const word = editor?.document.getWordRangeAtPosition(editor.selection.active);
  const proposed = selected || (word === undefined ? '' : (editor?.document.getText(word) ?? ''));
  const text = await askText({
    title: `Go to the ${direction === 'backward' ? 'last' : 'next'} write of`,
    prompt: 'A variable or an expression, such as accounts[7].balance',
    value: proposed,
  });
  return text?.trim() || undefined;
}

/** Asks for a function of the program. The adapter searches for the typed text. */
export function askFunction(session: Session, title: string): Promise<string | undefined> {
  const picker = vscode.window.createQuickPick<vscode.QuickPickItem>();
  picker.title = title;
  picker.placeholder = 'Part of a function’s name';
  picker.matchOnDescription = true;
  let asked = 0;
  const fill = async (filter: string) => {
    asked += 1;
    const mine = asked;
    picker.busy = true;
    try {
      const { functions, more } = await session.request('backtrail/functions', { filter, count: 200 });
      if (mine !== asked) {
        return;
      }
      picker.items = functions.map(({ name, file, line }) => ({
        label: name,
        ...(file === undefined ? {} : { description: line === undefined ? file : `${file}:${line}` }),
      }));
      picker.placeholder = more ? 'Part of a function’s name: there are more than are shown' : 'Part of a function’s name';
    } catch (error) {
      report(error);
    } finally {
      if (mine === asked) {
        picker.busy = false;
      }
    }
  };
  const selected = vscode.window.activeTextEditor;
  const word = selected?.document.getWordRangeAtPosition(selected.selection.active);
  const proposed = word === undefined || selected === undefined ? '' : selected.document.getText(word);
  let timer: NodeJS.Timeout | undefined;
  return new Promise((resolve) => {
    picker.onDidChangeValue((value) => {
      clearTimeout(timer);
      timer = setTimeout(() => void fill(value), 120);
    });
    picker.onDidAccept(() => {
      resolve(picker.selectedItems[0]?.label ?? (picker.value || undefined));
      picker.hide();
    });
    picker.onDidHide(() => {
      clearTimeout(timer);
      resolve(undefined);
      picker.dispose();
    });
    picker.show();
    void fill('').then(() => {
      const match = picker.items.find((item) => item.label === proposed);
      if (match !== undefined && picker.value === '') {
        picker.activeItems = [match];
      }
    });
  });
}

/** Keeps the state of the button that makes steps pass over library code. */
function showMyCode(sessions: Sessions): vscode.Disposable {
  const show = () =>
    void vscode.commands.executeCommand('setContext', 'backtrail.justMyCode', sessions.active?.justMyCode !== false);
  show();
  return vscode.Disposable.from(
    sessions.onDidChangeActive(show),
    sessions.onDidStart(show),
    sessions.onDidChangeMyCode(show),
  );
}

/** Keeps whether the active trace has recorded values. */
function showValues(sessions: Sessions): vscode.Disposable {
  const show = () =>
    void vscode.commands.executeCommand('setContext', 'backtrail.hasValues', sessions.active?.trace?.hasValues === true);
  show();
  return vscode.Disposable.from(sessions.onDidChangeActive(show), sessions.onDidStart(show), sessions.onDidMove(show));
}

/** Creates the status bar item with the position. */
function position(sessions: Sessions): vscode.Disposable {
  const item = vscode.window.createStatusBarItem('backtrail.position', vscode.StatusBarAlignment.Left, 50);
  item.name = 'Backtrail: Position';
  item.command = 'backtrail.goToPosition';
  const show = () => {
    const where = sessions.active?.where;
    if (where === undefined) {
      item.hide();
      return;
    }
    item.text = `$(history) ${[where.position, where.time?.text].filter((part) => part !== undefined).join('  ')}`;
    const trace = sessions.active?.trace;
    item.tooltip = [trace?.program, trace?.crash?.text, described(where), ...(trace?.notes ?? [])]
      .filter((line) => line !== undefined)
      .join('\n');
    item.accessibilityInformation = { label: `Position in the trace: ${described(where)}. Go to a position` };
    item.show();
  };
  return vscode.Disposable.from(item, sessions.onDidChangeActive(show), sessions.onDidMove(show));
}

function described(where: Where): string {
  const source = where.file === undefined ? undefined : `${where.file}:${where.line ?? '?'}`;
  const parts = [where.position, where.time?.text, where.function, source, where.end];
  return parts.filter((part) => part !== undefined).join(', ');
}
