/** Light and dark: the colors of canvases, and the switch of the page. */

import { element } from './dom';

/** The themes. */
export type Theme = 'light' | 'dark';

/** The colors of canvases. Style sheets have those of other elements. */
export interface Palette {
  background: string;
  text: string;
  line: string;
  focus: string;
  match: string;
  bar: string;
  /** The fill of a frame: its module decides the hue, and its function the lightness. */
  frame: (module: string, name: string) => string;
  /** The fill of frames that a search does not match. */
  faded: string;
  /** The fill of a change from -1, less, to 1, more. */
  change: (ratio: number) => string;
}

const LIGHT: Palette = {
  background: '#ffffff',
  text: '#16181d',
  line: '#ffffff',
  focus: '#0b3fd0',
  match: '#e9b6ff',
  bar: '#5b79c9',
  frame: (module, name) => `hsl(${hue(module)} 62% ${78 + shade(name)}%)`,
  faded: '#ededf0',
  change: (ratio) => diverging(ratio, 93, 68, 80),
};

const DARK: Palette = {
  background: '#15171c',
  text: '#f2f3f5',
  line: '#15171c',
  focus: '#9fc0ff',
  match: '#7b2f9e',
  bar: '#7f9be0',
  frame: (module, name) => `hsl(${hue(module)} 30% ${27 + shade(name)}%)`,
  faded: '#26282e',
  change: (ratio) => diverging(ratio, 26, 37, 55),
};

/** Returns the colors of a theme. */
export function palette(theme: Theme): Palette {
  return theme === 'dark' ? DARK : LIGHT;
}

/** Returns one of 24 different hues. */
function hue(module: string): number {
  return (hash(module) % 24) * 15;
}

/** Returns one of four steps of lightness. */
function shade(name: string): number {
  return (hash(name) % 4) * 3;
}

function hash(text: string): number {
  let hash = 7;
  for (const letter of text.slice(0, 200)) {
    hash = (hash * 31 + letter.charCodeAt(0)) % 100_003;
  }
  return hash;
}

/** Orange for more, blue for less. `from` and `to` are lightness without and with a full change. */
function diverging(ratio: number, from: number, to: number, saturation: number): string {
  const strength = Math.sqrt(Math.min(1, Math.abs(ratio)));
  const lightness = from + (to - from) * strength;
  return `hsl(${ratio > 0 ? 18 : 215} ${Math.round(saturation * strength)}% ${Math.round(lightness)}%)`;
}

/** The name of the setting in the browser's storage. */
const SETTING = 'backtrail-theme';

/** Keeps the theme of the page, and calls `changed` after each change. */
export class ThemeSwitch {
  readonly element: HTMLSelectElement;
  private readonly prefersDark = window.matchMedia('(prefers-color-scheme: dark)');

  constructor(private readonly changed: () => void) {
    this.element = element('select', { 'aria-label': 'Theme', onchange: () => this.choose() });
    for (const [value, title] of [['system', 'System theme'], ['light', 'Light'], ['dark', 'Dark']] as const) {
      this.element.append(element('option', { value }, title));
    }
    this.element.value = stored() ?? 'system';
    this.prefersDark.addEventListener('change', () => this.apply());
    new MutationObserver(() => this.apply()).observe(document.body, { attributeFilter: ['class'] });
    this.apply();
  }

  /** Returns the current theme. */
  get theme(): Theme {
    // VS Code names its theme by a class.
    const { classList } = document.body;
    if (classList.contains('vscode-dark') || classList.contains('vscode-high-contrast')) {
      return 'dark';
    }
    if (classList.contains('vscode-light') || classList.contains('vscode-high-contrast-light')) {
      return 'light';
    }
    const { value } = this.element;
    return value === 'dark' || (value !== 'light' && this.prefersDark.matches) ? 'dark' : 'light';
  }

  private choose(): void {
    try {
      localStorage.setItem(SETTING, this.element.value);
    } catch {
      // A page from a file may have no storage.
    }
    this.apply();
  }

  private apply(): void {
    document.documentElement.dataset['theme'] = this.theme;
    this.changed();
  }
}

function stored(): string | undefined {
  try {
    const value = localStorage.getItem(SETTING);
    return value === 'light' || value === 'dark' ? value : undefined;
  } catch {
    return undefined;
  }
}
