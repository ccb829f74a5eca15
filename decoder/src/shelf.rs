//! A list that only grows, and what comes to it can be handed to another thread without a copy.

use std::sync::Arc;

/// Items, kept in boards of so many each; one that is longer than a board has its own.
///
/// Items that are pushed together lie together. Where they begin tells their board, and where on it they are.
#[derive(Clone, Debug)]
pub(crate) struct Shelf<T> {
    boards: Vec<Arc<Vec<T>>>,
}

/// The boards of a shelf from one on, for another that has those before.
#[derive(Debug)]
pub(crate) struct Boards<T> {
    first: usize,
    boards: Vec<Arc<Vec<T>>>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { boards: Vec::new() }
    }
}

impl<T: Clone> Shelf<T> {
    const BITS: u32 = 10;
    /// Items of a board: few enough for a copy of one now and then, so many that boards are few.
    const SIZE: usize = 1 << Self::BITS;

    /// Appends an item: its number.
    pub fn push(&mut self, item: T) -> Option<u32> {
        self.push_all(std::slice::from_ref(&item))
    }

    /// Appends items: where they begin; `None` when there is no number for that any more.
    pub fn push_all(&mut self, items: &[T]) -> Option<u32> {
        let room = |last: &Arc<Vec<T>>| Self::SIZE.saturating_sub(last.len());
        if self.boards.last().is_none_or(|last| items.len() > room(last)) {
            // The first grows as it must: many shelves stay small.
            let room = if self.boards.is_empty() { 0 } else { Self::SIZE };
            self.boards.push(Arc::new(Vec::with_capacity(room)));
        }
        let board = self.boards.len() - 1;
        let last = self.boards.last_mut()?;
        let within = last.len();
        match Arc::get_mut(last) {
            Some(last) => last.extend_from_slice(items),
            // Who has it goes on with what it was.
            None => {
                let mut own = Vec::with_capacity(Self::SIZE.max(within + items.len()));
                own.extend_from_slice(last);
                own.extend_from_slice(items);
                *last = Arc::new(own);
            }
        }
        u32::try_from(board << Self::BITS | within).ok()
    }

    /// The item with a number, in a shelf to which items were pushed one by one.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let (board, within) = Self::place(number);
        self.boards.get(board)?.get(within)
    }

    /// So many items from where they begin; empty if there are none.
    #[inline]
    pub fn slice(&self, from: u32, len: usize) -> &[T] {
        let (board, within) = Self::place(from);
        let board = self.boards.get(board);
        board
            .and_then(|board| board.get(within..within + len))
            .unwrap_or(&[])
    }

    /// How many items there are, of those that were pushed one by one.
    pub fn len(&self) -> usize {
        match &*self.boards {
            [full @ .., last] => (full.len() << Self::BITS) + last.len(),
            [] => 0,
        }
    }

    /// What came to it since it had so many boards; then it has as many as are told.
    pub fn news(&self, known: &mut usize) -> Boards<T> {
        // The last may have got more.
        let first = known.saturating_sub(1);
        *known = self.boards.len();
        Boards {
            first,
            boards: self.boards.get(first..).unwrap_or(&[]).to_vec(),
        }
    }

    /// What came to the shelf that this one is like.
    pub fn learn(&mut self, news: Boards<T>) {
        self.boards.truncate(news.first);
        self.boards.extend(news.boards);
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.boards.iter().map(|board| size_of_val(&***board)).sum()
    }

    fn place(number: u32) -> (usize, usize) {
        let number = number as usize;
        (number >> Self::BITS, number & (Self::SIZE - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::Shelf;

    const SIZE: usize = Shelf::<u32>::SIZE;

    #[test]
    fn what_is_pushed_is_found_by_its_number() {
        let mut shelf = Shelf::default();
        for number in 0..3 * SIZE as u32 + 5 {
            assert_eq!(shelf.push(number * 3), Some(number));
        }
        assert_eq!(shelf.len(), 3 * SIZE + 5);
        assert!((0..shelf.len() as u32).all(|number| shelf.get(number) == Some(&(number * 3))));
        assert_eq!(shelf.get(shelf.len() as u32), None);
        assert_eq!(shelf.memory(), 4 * shelf.len());
    }

    #[test]
    fn items_pushed_together_lie_together() {
        let mut shelf = Shelf::default();
        let lens = [0, 1, SIZE - 2, 3, SIZE, 3 * SIZE, 1, 0, SIZE + 1, 7, 0];
        let lists: Vec<Vec<usize>> = lens.iter().map(|&len| (len..2 * len).collect()).collect();
        let places: Vec<u32> = lists.iter().map(|list| shelf.push_all(list).unwrap()).collect();
        for (list, &place) in lists.iter().zip(&places) {
            assert_eq!(shelf.slice(place, list.len()), list);
        }
        assert_eq!(shelf.slice(places[0], SIZE + 1), []);
        assert_eq!(shelf.slice(u32::MAX, 1), []);
    }

    #[test]
    fn another_shelf_is_like_it_by_its_news() {
        let (mut shelf, mut like, mut known) = (Shelf::default(), Shelf::default(), 0);
        for round in 0..300 {
            for len in [round % 7, round * 37 % (SIZE + 9)] {
                shelf.push_all(&vec![round; len]);
            }
            let before = like.clone();
            like.learn(shelf.news(&mut known));
            assert_eq!(like.boards, shelf.boards);
            // What was handed out before stays as it was.
            assert!(before.memory() <= like.memory());
            let told = before.boards.iter().zip(&like.boards);
            assert!(told.clone().all(|(old, new)| new.starts_with(old)));
        }
        assert!(shelf.boards.len() > 100);
    }
}
