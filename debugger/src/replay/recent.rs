//! The values that were used last, up to a size.

use std::collections::VecDeque;
use std::sync::Arc;

/// Values by number. Those that were not used for the longest time go first.
#[derive(Debug)]
pub struct Recent<T: ?Sized> {
    /// The values with their sizes, the last used one at the end.
    list: VecDeque<Kept<T>>,
    /// The most bytes of all values but the last one.
    limit: usize,
}

#[derive(Debug)]
struct Kept<T: ?Sized> {
    number: usize,
    size: usize,
    value: Arc<T>,
}

impl<T: ?Sized> Recent<T> {
    /// Returns an empty list that keeps `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self {
            list: VecDeque::new(),
            limit,
        }
    }

    /// Returns a value, which is the last used one from now on.
    pub fn get(&mut self, number: usize) -> Option<Arc<T>> {
        let at = self.list.iter().position(|kept| kept.number == number)?;
        let kept = self.list.remove(at)?;
        let value = kept.value.clone();
        self.list.push_back(kept);
        Some(value)
    }

    /// Adds a value of `size` bytes. It stays even if it is larger than the limit.
    pub fn add(&mut self, number: usize, value: Arc<T>, size: usize) {
        self.list.push_back(Kept { number, size, value });
        let mut total: usize = self.list.iter().map(|kept| kept.size).sum();
        while total > self.limit
            && self.list.len() > 1
            && let Some(oldest) = self.list.pop_front()
        {
            total -= oldest.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_value_goes_first() {
        let mut recent = Recent::new(100);
        for number in 0..3 {
            recent.add(number, Arc::new(number), 40);
            assert!(recent.get(0).is_some() || number == 2);
        }
        let left: Vec<usize> = (0..4).filter(|&number| recent.get(number).is_some()).collect();
        assert_eq!(left, [0, 2]);
        recent.add(3, Arc::new(3), 1000);
        assert!(recent.get(3).is_some() && recent.get(2).is_none());
    }
}
