/** The weight of source lines of the open profile, in the gutter and after the lines. */

import * as vscode from 'vscode';
import type { LineWeight } from '../../../../web/src/lines';
import { formatPercent, formatWeight } from '../../../../web/src/units';
import { plain } from '../../text';
import { isSame } from './sources';

/** The steps of the bar in the gutter. */
const STEPS = 8;

/** The weights to show. */
export interface Costs {
  lines: Map<string, LineWeight[]>;
  /** Where a file of the profile is on this machine, if it is elsewhere. */
  places: ReadonlyMap<string, string>;
  event: string;
  unit: string;
  /** The weight of all samples. */
  all: number;
}

/** Shows the weights in the visible editors. */
export class CostMarks implements vscode.Disposable {
  private readonly bars = Array.from({ length: STEPS }, (_, at) => bar((at + 1) / STEPS));
  private readonly watch = vscode.window.onDidChangeVisibleTextEditors(() => this.show());
  private costs: Costs | undefined;

  /** Shows weights, or none. */
  set(costs: Costs | undefined): void {
    this.costs = costs;
    this.show();
  }

  dispose(): void {
    vscode.Disposable.from(this.watch, ...this.bars).dispose();
  }

  private show(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const marks = this.marks(editor);
      this.bars.forEach((bar, at) => editor.setDecorations(bar, marks[at] ?? []));
    }
  }

  /** Returns the marks of each step of the bar. */
  private marks({ document }: vscode.TextEditor): vscode.DecorationOptions[][] {
    const { costs } = this;
    const marks: vscode.DecorationOptions[][] = Array.from({ length: STEPS }, () => []);
    if (costs === undefined || document.uri.scheme !== 'file') {
      return marks;
    }
    for (const [file, lines] of costs.lines) {
      if (!isSame(document.uri.fsPath, costs.places.get(file) ?? file)) {
        continue;
      }
      const most = lines.reduce((most, { total }) => Math.max(most, total), 0);
      for (const { line, own, total } of lines) {
        if (total > 0 && line <= document.lineCount) {
          const step = Math.max(0, Math.ceil((total / most) * STEPS) - 1);
          marks[step]?.push(mark(document.lineAt(line - 1).range, own, total, costs));
        }
      }
    }
    return marks;
  }
}

function mark(range: vscode.Range, own: number, total: number, { event, unit, all }: Costs): vscode.DecorationOptions {
  const text = (weight: number) => `${formatWeight(weight, unit)} (${formatPercent(weight, all)})`;
  const hoverMessage = plain(`${event}: total ${text(total)}, own ${text(own)}`);
  const color = new vscode.ThemeColor('editorCodeLens.foreground');
  return { range, hoverMessage, renderOptions: { after: { contentText: text(total), margin: '0 0 0 2em', color } } };
}

/** Returns the decoration with a bar of this length in the gutter. */
function bar(length: number): vscode.TextEditorDecorationType {
  const width = (16 * length).toFixed(1);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16"><rect y="4" width="${width}" height="8" fill="#e07a3f"/></svg>`;
  return vscode.window.createTextEditorDecorationType({
    gutterIconPath: vscode.Uri.parse(`data:image/svg+xml;base64,${Buffer.from(svg).toString('base64')}`),
    gutterIconSize: 'contain',
    overviewRulerColor: '#e07a3f',
    overviewRulerLane: vscode.OverviewRulerLane.Left,
  });
}
