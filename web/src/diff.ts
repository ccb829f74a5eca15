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

/** Returns the kind of a change. */
export function changeKind(before: number, after: number): ChangeKind {
  const larger = Math.max(Math.abs(before), Math.abs(after));
  // Scaled weights of equal profiles differ in their last digits.
  if (Math.abs(after - before) <= larger * 1e-9) {
    return 'same';
  }
  if (before === 0) {
    return 'new';
  }
  if (after === 0) {
    return 'removed';
  }
  return after > before ? 'more' : 'less';
}

/** Returns the change of a weight. */
export function changeOf(before: number, after: number): Change {
  const kind = changeKind(before, after);
  switch (kind) {
    case 'same':
      return { kind, ratio: 0, text: 'same' };
    case 'new':
      return { kind, ratio: 1, text: 'new' };
    case 'removed':
      return { kind, ratio: -1, text: 'removed' };
    default: {
      const larger = Math.max(Math.abs(before), Math.abs(after));
      const ratio = Math.max(-1, Math.min(1, (after - before) / larger));
      const percent = ((after - before) / Math.abs(before)) * 100;
      const digits = Math.abs(percent) < 10 ? 1 : 0;
      return { kind, ratio, text: `${percent > 0 ? '+' : '−'}${Math.abs(percent).toFixed(digits)}%` };
    }
  }
}
