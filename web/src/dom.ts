/** Elements of the page. Texts become text nodes, never HTML. */

/** Attributes and listeners of an element. Listeners begin with `on`. */
type Attributes = Record<string, string | boolean | ((event: Event) => void)>;

/** Returns a new element. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      made.addEventListener(name.slice(2), value);
    } else if (value === true) {
      made.setAttribute(name, '');
    } else if (value !== false) {
      made.setAttribute(name, value);
    }
  }
  made.append(...children);
  return made;
}

/** Sizes a canvas for the screen's pixels, and returns its context in CSS pixels. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  if (context === null) {
    throw new Error('This browser has no canvas.');
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
