/** A long list that is loaded in pages: the visible entries, and the next page to load. */

/** A loaded item, or a range that is not loaded. */
export type Slot<Item> =
  | { item: Item; at: number }
  /**
   * Items from `from` up to, but excluding, `to` are not loaded. Loading more begins at `from`, or
   * ends before `to`.
   */
  | { from: number; to: number; end: 'first' | 'last' };

/** Pages of a list. */
export class Pages<Item> {
  private readonly items = new Map<number, Item[]>();
  private readonly pending = new Map<number, Promise<void>>();
  total = 0;

  constructor(readonly pageSize: number) {}

  /** Stores a loaded page. */
  add(page: number, items: Item[], total: number): void {
    this.items.set(page, items);
    this.total = total;
  }

  /** Loads a page, once. */
  async load(page: number, ask: () => Promise<{ items: Item[]; total: number }>): Promise<void> {
    if (this.has(page)) {
      return;
    }
    let asked = this.pending.get(page);
    if (asked === undefined) {
      asked = ask()
        .then(({ items, total }) => this.add(page, items, total))
        .finally(() => this.pending.delete(page));
      this.pending.set(page, asked);
    }
    await asked;
  }

  /** Returns the page of an item. */
  pageOf(at: number): number {
    return Math.floor(at / this.pageSize);
  }

  has(page: number): boolean {
    return this.items.has(page);
  }

  at(at: number): Item | undefined {
    return this.items.get(this.pageOf(at))?.[at % this.pageSize];
  }

  /** Returns the page to load for a range. */
  pageFor(slot: { from: number; to: number; end: 'first' | 'last' }): number {
    return this.pageOf(slot.end === 'first' ? slot.from : slot.to - 1);
  }

  /** Returns everything in order. A range between two loaded pages can be loaded from both ends. */
  slots(): Slot<Item>[] {
    const slots: Slot<Item>[] = [];
    let next = 0;
    const skipTo = (to: number, isLast: boolean) => {
      if (to > next) {
        if (next > 0) {
          slots.push({ from: next, to, end: 'first' });
        }
        // A range of one page needs no second entry.
        if (!isLast && (next === 0 || to - next > this.pageSize)) {
          slots.push({ from: next, to, end: 'last' });
        } else if (next === 0) {
          slots.push({ from: next, to, end: 'first' });
        }
      }
    };
    for (const page of [...this.items.keys()].sort((a, b) => a - b)) {
      const start = page * this.pageSize;
      skipTo(start, false);
      (this.items.get(page) ?? []).forEach((item, index) => slots.push({ item, at: start + index }));
      next = Math.max(next, start + this.pageSize);
    }
    skipTo(this.total, true);
    return slots;
  }
}
