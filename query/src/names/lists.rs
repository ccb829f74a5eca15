//! Lists of numbers.

/// Lists of numbers in one allocation.
#[derive(Debug, Default)]
pub(super) struct Lists {
    ends: Vec<u32>,
    values: Vec<u32>,
}

impl Lists {
    /// Adds a list. Returns `None` if the lists would have 2^32 values.
    pub(super) fn push(&mut self, values: impl IntoIterator<Item = u32>) -> Option<()> {
        self.values.extend(values);
        self.ends.push(u32::try_from(self.values.len()).ok()?);
        Some(())
    }

    /// Returns a list, or `None` beyond the last one.
    pub(super) fn get(&self, index: u32) -> Option<&[u32]> {
        let index = usize::try_from(index).ok()?;
        let end = usize::try_from(*self.ends.get(index)?).ok()?;
        let start = match index.checked_sub(1) {
            Some(before) => usize::try_from(*self.ends.get(before)?).ok()?,
            None => 0,
        };
        self.values.get(start..end)
    }

    /// Returns the number of lists.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the occupied memory.
    pub(super) fn bytes(&self) -> usize {
        (self.ends.capacity() + self.values.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_back_with_empty_ones() {
        let mut lists = Lists::default();
        for list in [&[1, 2][..], &[], &[3]] {
            lists.push(list.iter().copied()).unwrap();
        }
        assert_eq!(lists.get(0), Some(&[1, 2][..]));
        assert_eq!(lists.get(1), Some(&[][..]));
        assert_eq!(lists.get(2), Some(&[3][..]));
        assert_eq!(lists.get(3), None);
    }
}
