//! An append-only vector whose new items can be sent to another thread without a copy.

use std::sync::Arc;

/// A vector in chunks of a fixed size; a longer slice has a chunk of its own.
///
/// Items pushed together are contiguous. An item's number gives its chunk and its place in it.
#[derive(Clone, Debug)]
pub(crate) struct AppendVec<T> {
    chunks: Vec<Arc<Vec<T>>>,
}

/// The chunks from one on, for a copy that has those before.
#[derive(Debug)]
pub(crate) struct AppendVecDelta<T> {
    first: usize,
    chunks: Vec<Arc<Vec<T>>>,
}

impl<T> Default for AppendVec<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T: Clone> AppendVec<T> {
    const BITS: u32 = 10;
    /// Items of a chunk. A chunk in use by a copy is cloned on a push.
    const SIZE: usize = 1 << Self::BITS;

    /// Appends an item and returns its number.
    pub fn push(&mut self, item: T) -> Option<u32> {
        self.push_all(std::slice::from_ref(&item))
    }

    /// Appends items and returns the number of the first; `None` if numbers have run out.
    pub fn push_all(&mut self, items: &[T]) -> Option<u32> {
        let room = |last: &Arc<Vec<T>>| Self::SIZE.saturating_sub(last.len());
        if self.chunks.last().is_none_or(|last| items.len() > room(last)) {
            // The first chunk grows as needed: many vectors stay small.
            let room = if self.chunks.is_empty() { 0 } else { Self::SIZE };
            self.chunks.push(Arc::new(Vec::with_capacity(room)));
        }
        let chunk = self.chunks.len() - 1;
        let last = self.chunks.last_mut()?;
        let within = last.len();
        match Arc::get_mut(last) {
            Some(last) => last.extend_from_slice(items),
            // A copy keeps the old chunk.
            None => {
                let mut own = Vec::with_capacity(Self::SIZE.max(within + items.len()));
                own.extend_from_slice(last);
                own.extend_from_slice(items);
                *last = Arc::new(own);
            }
        }
        u32::try_from(chunk << Self::BITS | within).ok()
    }

    /// Returns the item with a number, if items were pushed one by one.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let (chunk, within) = Self::place(number);
        self.chunks.get(chunk)?.get(within)
    }

    /// Returns `len` items from a number on; empty if there are none.
    #[inline]
    pub fn slice(&self, from: u32, len: usize) -> &[T] {
        let (chunk, within) = Self::place(from);
        let chunk = self.chunks.get(chunk);
        chunk
            .and_then(|chunk| chunk.get(within..within + len))
            .unwrap_or(&[])
    }

    /// Returns the number of items, if they were pushed one by one.
    pub fn len(&self) -> usize {
        match &*self.chunks {
            [full @ .., last] => (full.len() << Self::BITS) + last.len(),
            [] => 0,
        }
    }

    /// Returns the chunks that are new since `known`, and updates `known`.
    pub fn delta(&self, known: &mut usize) -> AppendVecDelta<T> {
        // The last known chunk may have grown.
        let first = known.saturating_sub(1);
        *known = self.chunks.len();
        AppendVecDelta {
            first,
            chunks: self.chunks.get(first..).unwrap_or(&[]).to_vec(),
        }
    }

    /// Applies a delta of the vector that this one copies.
    pub fn apply(&mut self, delta: AppendVecDelta<T>) {
        self.chunks.truncate(delta.first);
        self.chunks.extend(delta.chunks);
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        self.chunks.iter().map(|chunk| size_of_val(&***chunk)).sum()
    }

    fn place(number: u32) -> (usize, usize) {
        let number = number as usize;
        (number >> Self::BITS, number & (Self::SIZE - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::AppendVec;

    const SIZE: usize = AppendVec::<u32>::SIZE;

    #[test]
    fn pushed_items_are_found_by_index() {
        let mut vec = AppendVec::default();
        for number in 0..3 * SIZE as u32 + 5 {
            assert_eq!(vec.push(number * 3), Some(number));
        }
        assert_eq!(vec.len(), 3 * SIZE + 5);
        assert!((0..vec.len() as u32).all(|number| vec.get(number) == Some(&(number * 3))));
        assert_eq!(vec.get(vec.len() as u32), None);
        assert_eq!(vec.memory(), 4 * vec.len());
    }

    #[test]
    fn items_pushed_together_lie_together() {
        let mut vec = AppendVec::default();
        let lens = [0, 1, SIZE - 2, 3, SIZE, 3 * SIZE, 1, 0, SIZE + 1, 7, 0];
        let lists: Vec<Vec<usize>> = lens.iter().map(|&len| (len..2 * len).collect()).collect();
        let places: Vec<u32> = lists.iter().map(|list| vec.push_all(list).unwrap()).collect();
        for (list, &place) in lists.iter().zip(&places) {
            assert_eq!(vec.slice(place, list.len()), list);
        }
        assert_eq!(vec.slice(places[0], SIZE + 1), []);
        assert_eq!(vec.slice(u32::MAX, 1), []);
    }

    #[test]
    fn applying_deltas_gives_an_equal_vector() {
        let (mut vec, mut like, mut known) = (AppendVec::default(), AppendVec::default(), 0);
        for round in 0..300 {
            for len in [round % 7, round * 37 % (SIZE + 9)] {
                vec.push_all(&vec![round; len]);
            }
            let before = like.clone();
            like.apply(vec.delta(&mut known));
            assert_eq!(like.chunks, vec.chunks);
            // Earlier copies are unchanged.
            assert!(before.memory() <= like.memory());
            let pairs = before.chunks.iter().zip(&like.chunks);
            assert!(pairs.clone().all(|(old, new)| new.starts_with(old)));
        }
        assert!(vec.chunks.len() > 100);
    }
}
