//! Long lists that grow without moving, in memory that another thread may have had the kernel hand out before.
//!
//! The first touch of a page of memory costs as much as some hundred instructions, more on a virtual machine. A list that
//! grows by hundreds of megabytes waits for that at each page; a thread that has nothing else to do can take it upon
//! itself, by a [`Store`].

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A list in chunks.
#[derive(Clone, Debug)]
pub(crate) struct Pile<T> {
    /// Of [`Pile::CHUNK`] items each.
    full: Vec<Vec<T>>,
    /// The first one grows with its items: there may be few.
    last: Vec<T>,
    /// Where chunks come from.
    store: Option<Arc<Store<T>>>,
}

impl<T> Default for Pile<T> {
    fn default() -> Self {
        Self {
            full: Vec::new(),
            last: Vec::new(),
            store: None,
        }
    }
}

impl<T: Copy + Default> Pile<T> {
    /// Items in each chunk but the last: half a megabyte.
    const CHUNK: usize = (1 << 19) / size_of::<T>();
    /// What the first one has room for as soon as there is any.
    const FEW: usize = 16;

    /// Chunks come from there, as long as it has any.
    pub fn draw_from(&mut self, store: Arc<Store<T>>) {
        self.store = Some(store);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.full.len() * Self::CHUNK + self.last.len()
    }

    /// Its length is a multiple of a number, of which that of chunks is one, too.
    #[inline]
    pub fn is_even<const NUMBER: usize>(&self) -> bool {
        const { assert!(Self::CHUNK.is_multiple_of(NUMBER)) };
        self.last.len().is_multiple_of(NUMBER)
    }

    #[inline]
    pub fn push(&mut self, item: T) {
        // No chunk has room for more than its items: one question tells both.
        if self.last.len() == self.last.capacity() {
            return self.push_far(item);
        }
        self.last.push(item);
    }

    #[inline]
    pub fn push_two(&mut self, items: [T; 2]) {
        if self.last.capacity() - self.last.len() >= 2 {
            self.last.extend_from_slice(&items);
        } else {
            items.into_iter().for_each(|item| self.push_far(item));
        }
    }

    /// The last chunk may be full: then it grows, if it is the first one, or another begins.
    #[cold]
    fn push_far(&mut self, item: T) {
        let len = self.last.len();
        if len == Self::CHUNK {
            let spare = self.store.as_ref().and_then(|store| store.take());
            let next = spare.unwrap_or_else(|| chunk(Self::CHUNK));
            self.full.push(std::mem::replace(&mut self.last, next));
        } else if len == self.last.capacity() {
            let mut grown = chunk((2 * len).clamp(Self::FEW, Self::CHUNK));
            grown.extend_from_slice(&self.last);
            self.last = grown;
        }
        self.last.push(item);
    }

    #[inline]
    fn chunk(&self, number: usize) -> Option<&Vec<T>> {
        match self.full.get(number) {
            None if number == self.full.len() => Some(&self.last),
            chunk => chunk,
        }
    }

    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        self.chunk(at / Self::CHUNK)?.get(at % Self::CHUNK)
    }

    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let number = at / Self::CHUNK;
        let chunk = match number == self.full.len() {
            true => &mut self.last,
            false => self.full.get_mut(number)?,
        };
        chunk.get_mut(at % Self::CHUNK)
    }

    /// Takes items away until there are `len`.
    pub fn truncate(&mut self, len: usize) {
        while self.len() > len {
            let rest = len.saturating_sub(self.full.len() * Self::CHUNK);
            self.last.truncate(rest);
            if rest == 0
                && let Some(before) = self.full.pop()
            {
                self.last = before;
            }
        }
    }

    /// Takes all items away, and keeps room for some.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// The first of a range for which `before` does not hold, as it does for all in front of that one.
    #[inline]
    pub fn partition_point(&self, range: Range<usize>, before: impl Fn(usize, &T) -> bool) -> usize {
        let Range {
            start: mut low,
            end: mut high,
        } = range;
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(|item| before(middle, item)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// No more items will come.
    pub fn shrink(&mut self) {
        self.store = None;
        self.last.shrink_to_fit();
        self.full.shrink_to_fit();
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.len() * size_of::<T>() + size_of_val(&*self.full)
    }
}

/// A chunk with room for so many items, and no more.
fn chunk<T: Copy + Default>(room: usize) -> Vec<T> {
    let mut chunk = Vec::with_capacity(room);
    if chunk.capacity() != room {
        // An allocator may give more, but not to a list that has its length.
        chunk = vec![T::default(); room].into_boxed_slice().into_vec();
        chunk.clear();
    }
    chunk
}

/// Chunks for piles, in memory that was touched.
#[derive(Debug)]
pub(crate) struct Store<T> {
    chunks: Mutex<Vec<Vec<T>>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            chunks: Mutex::default(),
        }
    }
}

impl<T: Copy + Default> Store<T> {
    /// The most chunks that lie ready: four megabytes.
    const MOST: usize = 8;

    fn chunks(&self) -> MutexGuard<'_, Vec<Vec<T>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Vec<T>> {
        self.chunks().pop()
    }

    /// It has room for another chunk.
    pub fn wants(&self) -> bool {
        self.chunks().len() < Self::MOST
    }

    /// Puts another chunk into it.
    pub fn fill(&self) {
        let mut chunk = chunk(Pile::<T>::CHUNK);
        // All of it is written to.
        chunk.resize(Pile::<T>::CHUNK, T::default());
        chunk.clear();
        self.chunks().push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pile_is_a_list() {
        let chunk = Pile::<u32>::CHUNK;
        let store = Arc::new(Store::default());
        store.fill();
        assert!(store.wants());
        let mut pile = Pile::default();
        pile.draw_from(Arc::clone(&store));
        let len = 3 * chunk + 5;
        (0..len as u32).for_each(|item| pile.push(item));
        assert!(store.chunks().is_empty());
        assert_eq!(pile.len(), len);
        for at in [0, 1, chunk - 1, chunk, 3 * chunk - 1, 3 * chunk, len - 1] {
            assert_eq!(pile.get(at).copied(), Some(at as u32));
            assert_eq!(pile.get_mut(at).copied(), Some(at as u32));
        }
        for at in [len, 4 * chunk, 5 * chunk, 9 * chunk + 1] {
            assert_eq!(pile.get(at), None);
            assert_eq!(pile.get_mut(at), None);
        }
        assert!((0..len).all(|at| pile.get(at) == Some(&(at as u32))));
        assert_eq!(
            pile.partition_point(7..len, |_, &item| item < 2 * chunk as u32),
            2 * chunk
        );
        assert_eq!(pile.partition_point(7..9, |_, _| true), 9);
    }

    #[test]
    fn a_pile_goes_down_over_the_edge_of_a_chunk() {
        let chunk = Pile::<u32>::CHUNK;
        let mut pile = Pile::default();
        (0..=chunk as u32).for_each(|item| pile.push(item));
        pile.truncate(chunk - 1);
        assert_eq!((pile.len(), pile.get(chunk - 1)), (chunk - 1, None));
        assert_eq!(pile.get(chunk - 2), Some(&(chunk as u32 - 2)));
        (0..3 * chunk as u32).for_each(|item| pile.push(item));
        pile.truncate(chunk + 1);
        assert_eq!(pile.len(), chunk + 1);
        pile.push(7);
        assert_eq!((pile.get(chunk), pile.get(chunk + 1)), (Some(&1), Some(&7)));
        pile.truncate(chunk);
        assert_eq!((pile.len(), pile.get(chunk - 1)), (chunk, Some(&0)));
        pile.clear();
        assert_eq!((pile.len(), pile.get(0)), (0, None));
        pile.push(1);
        (0..chunk as u32).for_each(|item| pile.push_two([item, item]));
        assert_eq!(pile.len(), 2 * chunk + 1);
        assert!((0..2 * chunk).all(|at| pile.get(at + 1) == Some(&(at as u32 / 2))));
    }
}
