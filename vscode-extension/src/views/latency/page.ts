/** The HTML of the latency page, without its code. */

/** The style sheet, which uses only the theme's colors. */
export const STYLE = `
body { padding: 6px 12px; color: var(--vscode-foreground); font: var(--vscode-font-size) var(--vscode-font-family); }
form { display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center; margin-bottom: 8px; }
input[type=text] { flex: 1 1 14em; max-width: 30em; padding: 3px 6px; color: var(--vscode-input-foreground); background: var(--vscode-input-background);
  border: 1px solid var(--vscode-input-border, var(--vscode-contrastBorder, transparent)); font: inherit; }
button { padding: 3px 10px; border: 1px solid var(--vscode-contrastBorder, transparent); font: inherit; cursor: pointer;
  color: var(--vscode-button-foreground); background: var(--vscode-button-background); }
button:hover { background: var(--vscode-button-hoverBackground); }
button.plain { color: var(--vscode-button-secondaryForeground); background: var(--vscode-button-secondaryBackground); }
button:disabled { opacity: 0.5; cursor: default; }
:focus-visible { outline: 1px solid var(--vscode-focusBorder); outline-offset: 1px; }
h2 { font-size: 110%; margin: 10px 0 4px; }
p { margin: 4px 0; }
.dim { color: var(--vscode-descriptionForeground); }
#columns { display: flex; flex-wrap: wrap; gap: 0 32px; }
#columns > section { min-width: 20em; flex: 1 1 24em; }
table { border-collapse: collapse; width: 100%; max-width: 60em; }
th { text-align: left; font-weight: 600; }
th, td { padding: 1px 8px 1px 0; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
#histogram td.bar { width: 50%; padding: 2px 0; }
#histogram svg { display: block; width: 100%; height: 12px; }
#histogram .sure { fill: var(--vscode-charts-blue); }
#histogram .unsure { fill: transparent; stroke: var(--vscode-charts-blue); stroke-dasharray: 2 2; }
#rows tbody tr { cursor: pointer; }
#rows tbody tr:hover { background: var(--vscode-list-hoverBackground); }
#rows tbody tr[aria-selected=true] { background: var(--vscode-list-inactiveSelectionBackground); }
#rows a { color: var(--vscode-textLink-foreground); }
nav { display: flex; gap: 8px; align-items: center; margin: 6px 0; flex-wrap: wrap; }
pre { overflow: auto; padding: 8px; background: var(--vscode-textCodeBlock-background); border: 1px solid var(--vscode-contrastBorder, transparent);
  font-family: var(--vscode-editor-font-family); font-size: var(--vscode-editor-font-size); }
[hidden] { display: none !important; }
`;

/** The elements. */
export const BODY = `
<form id="form">
  <label for="function">Function</label>
  <input type="text" id="function" spellcheck="false" autocomplete="off" placeholder="A name, or /REGEX/">
  <button type="submit">Show</button>
  <button type="button" id="choose" class="plain">Choose…</button>
  <label><input type="checkbox" id="instructions"> count instructions</label>
</form>
<p id="status" role="status" class="dim">How long the calls of a function took, as soon as a trace is open.</p>
<div id="answer" hidden>
  <div id="columns">
    <section aria-labelledby="spread-title"><h2 id="spread-title">Lengths</h2><table id="spread"></table><div id="unmeasured" class="dim"></div></section>
    <section aria-labelledby="histogram-title"><h2 id="histogram-title">Histogram</h2><table id="histogram"></table></section>
  </div>
  <h2 id="rows-title">Calls</h2>
  <nav aria-label="Pages of calls">
    <button type="button" id="previous" class="plain">Previous</button>
    <span id="page" role="status"></span>
    <button type="button" id="next" class="plain">Next</button>
    <button type="button" id="compare" disabled>Compare the two selected</button>
  </nav>
  <section id="comparison" aria-labelledby="comparison-title" hidden><h2 id="comparison-title">Compared</h2><pre id="text" tabindex="0"></pre></section>
  <table id="rows" aria-labelledby="rows-title"></table>
</div>
`;
