/** The HTML of a profile's page, without its code. */

import shared from '../../../../web/src/style.css';

/** The style sheet of the component, with the theme's colors. */
export const STYLE = `${shared}
:root, :root[data-theme=dark] {
  --background: var(--vscode-editor-background); --text: var(--vscode-foreground); --dim: var(--vscode-descriptionForeground);
  --field: var(--vscode-input-background); --accent: var(--vscode-textLink-foreground);
}
select[aria-label=Theme] { display: none; }
`;

/** The elements. */
export const BODY = '<div id="root"></div>';
