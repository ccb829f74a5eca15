//! Puts the records of several rings in the order of time.
//!
//! A processor may write a record with an earlier time while another ring is read. Records wait
//! until all rings were read at a later time.

/// Records that wait, with their times.
#[derive(Debug)]
pub(crate) struct RecordQueue<T> {
    records: Vec<(u64, T)>,
}

impl<T> Default for RecordQueue<T> {
    fn default() -> Self {
        Self { records: Vec::new() }
    }
}

impl<T> RecordQueue<T> {
    /// Adds a record.
    pub fn push(&mut self, time: u64, record: T) {
        self.records.push((time, record));
    }

    /// Removes the records up to a time, the oldest first. Records of one time stay in the order in
    /// which they were added.
    pub fn take_until(&mut self, time: u64) -> impl Iterator<Item = (u64, T)> {
        self.records.sort_by_key(|(time, _)| *time);
        let count = self.records.partition_point(|(at, _)| *at <= time);
        self.records.drain(..count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_the_order_of_time() {
        let mut queue = RecordQueue::default();
        for (time, record) in [(5, 'a'), (9, 'b'), (3, 'c'), (5, 'd'), (7, 'e')] {
            queue.push(time, record);
        }
        let taken: String = queue.take_until(5).map(|(_, record)| record).collect();
        assert_eq!(taken, "cad");
        queue.push(6, 'f');
        let taken: Vec<_> = queue.take_until(u64::MAX).collect();
        assert_eq!(taken, [(6, 'f'), (7, 'e'), (9, 'b')]);
    }
}
