/** The HTML of the timeline's page, without its code. */

/** The style sheet, which uses only the theme's colors. */
export const STYLE = `
html, body { height: 100%; margin: 0; padding: 0; overflow: hidden; }
body { display: flex; flex-direction: column; color: var(--vscode-foreground); font: var(--vscode-font-size) var(--vscode-font-family); }
#stage { position: relative; flex: 1 1 auto; min-height: 0; }
#canvas { position: absolute; inset: 0; width: 100%; height: 100%; display: block; cursor: default; touch-action: none; }
#canvas:focus { outline: 1px solid var(--vscode-focusBorder); outline-offset: -1px; }
#tip { position: absolute; pointer-events: none; max-width: 60%; padding: 4px 8px; z-index: 2; white-space: pre-line;
  color: var(--vscode-editorHoverWidget-foreground); background: var(--vscode-editorHoverWidget-background);
  border: 1px solid var(--vscode-contrastBorder, var(--vscode-editorHoverWidget-border)); }
#tip[hidden] { display: none; }
#legend { flex: none; display: flex; flex-wrap: wrap; gap: 2px 14px; padding: 2px 8px; font-size: 90%; align-items: center;
  color: var(--vscode-descriptionForeground); }
#legend .sample { display: inline-block; width: 22px; height: 12px; margin-right: 5px; vertical-align: middle; }
#notice { position: absolute; inset: 0; display: flex; align-items: center; justify-content: center; padding: 1em; text-align: center; pointer-events: none; }
#notice[hidden] { display: none; }
.spoken { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
`;

/** The elements. */
export const BODY = `
<div id="stage">
  <canvas id="canvas" tabindex="0" role="application" aria-label="Timeline of threads and calls" aria-describedby="help"></canvas>
  <div id="notice" role="status">The threads of a trace on one clock, as soon as one is open.</div>
  <div id="tip" aria-hidden="true" hidden></div>
</div>
<div id="legend" aria-label="What the bars mean"></div>
<p id="help" class="spoken">Arrow keys choose a call, Enter goes there. Plus and minus zoom, Shift with the arrow keys pans, 0 shows all, Home and End show both ends of the trace, H shows where you are.</p>
<div id="spoken" class="spoken" role="status" aria-live="polite"></div>
`;
