/** The change of a weight between two profiles, in words and as a number for colors. */

/** The kinds of changes. */
export type ChangeKind = 'new' | 'removed' | 'more' | 'less' | 'same';

/** A change. */
export interface Change {
  kind: ChangeKind;
  /** The difference, by the larger weight: from -1, removed, to 1, new. */
  ratio: number;
  /** The change as a word or a percentage of the earlier weight. */
  text: string;
}

/** Returns the change of a weight. */
export function changeOf(before: number, after: number): Change {
  const larger = Math.max(Math.abs(before), Math.abs(after));
  // Scaled weights of equal profiles differ in their last digits.
  if (Math.abs(after - before) <= larger * 1e-9) {
    return { kind: 'same', ratio: 0, text: 'same' };
  }
  if (before === 0) {
    return { kind: 'new', ratio: 1, text: 'new' };
  }
  if (after === 0) {
    return { kind: 'removed', ratio: -1, text: 'removed' };
  }
  const ratio = Math.max(-1, Math.min(1, (after - before) / larger));
  const percent = ((after - before) / Math.abs(before)) * 100;
  const digits = Math.abs(percent) < 10 ? 1 : 0;
  const text = `${percent > 0 ? '+' : '−'}${Math.abs(percent).toFixed(digits)}%`;
  return { kind: after > before ? 'more' : 'less', ratio, text };
}
