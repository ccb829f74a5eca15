//! The hashes of pushes whose samples a segment has, in the footer of its contexts.

use crate::file::ParquetFile;
use crate::hour::Hour;
use crate::segment::{SegmentEntry, TableKind};
use crate::{Error, Result};
use backtrail_profile::UnixNanos;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object_store::ObjectStore;
use parquet::file::metadata::KeyValue;
use std::collections::BTreeSet;
use std::fmt;

/// The key of the hashes in the footer.
const KEY: &str = "backtrail.pushes";
/// The version of the list, which is its first byte.
const VERSION: u8 = 1;
/// The bytes of a hash.
const LENGTH: usize = 16;
/// The maximum length of a list as text. The longest one has an hour for each hash.
const MAX_TEXT: usize = 4 << 20;

/// The hash of a push, by which one that is sent again is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushHash(pub [u8; LENGTH]);

/// 32 hexadecimal digits.
impl fmt::Display for PushHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PushHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hashes of pushes, with the hours in which they were received. A list above
/// [`PushHashes::MAX`] loses the earliest ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushHashes(BTreeSet<(Hour, PushHash)>);

impl PushHashes {
    /// The maximum number of hashes.
    pub const MAX: usize = 1 << 16;
    /// The hours for which a push is known. A sender that was away for longer sends it again as
    /// new.
    pub const HOURS: u32 = 7 * 24;

    /// Reads the hashes of a segment's pushes from its files. A segment of an earlier version has
    /// none.
    ///
    /// # Errors
    ///
    /// [`Error::Object`] if the object store fails, [`Error::Missing`] or [`Error::Damaged`] for a
    /// file that cannot be read, and [`Error::Invalid`] for a list of a newer version.
    pub async fn of_segment(objects: &dyn ObjectStore, entry: &SegmentEntry) -> Result<Self> {
        let file = ParquetFile::open(objects, entry, TableKind::Contexts).await?;
        Self::read(file.key(), file.entries())
    }

    /// Adds a hash.
    pub fn add(&mut self, hash: PushHash, received: Hour) {
        self.0.insert((received, hash));
        if self.0.len() > Self::MAX {
            self.0.pop_first();
        }
    }

    /// Adds the hashes of another list.
    pub fn absorb(&mut self, other: &Self) {
        other.iter().for_each(|(hash, received)| self.add(hash, received));
    }

    /// Drops the hashes that are not known any more at a time, and those of later hours. The clock
    /// of another writer may be an hour ahead.
    pub fn keep_known(&mut self, now: UnixNanos) {
        let now = Hour::of(now).0;
        let known = now.saturating_sub(Self::HOURS)..=now.saturating_add(1);
        self.0.retain(|(received, _)| known.contains(&received.0));
    }

    /// Returns the hashes, the earliest hour first.
    pub fn iter(&self) -> impl Iterator<Item = (PushHash, Hour)> {
        self.0.iter().map(|(received, hash)| (*hash, *received))
    }

    /// Returns the number of hashes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entry of the footer. `None`: there are no hashes.
    pub(crate) fn entry(&self) -> Option<KeyValue> {
        if self.0.is_empty() {
            return None;
        }
        let hashes: Vec<_> = self.0.iter().collect();
        let mut bytes = vec![VERSION];
        for group in hashes.chunk_by(|one, other| one.0 == other.0) {
            let hour = group.first().map_or(0, |(hour, _)| hour.0);
            bytes.extend_from_slice(&hour.to_le_bytes());
            bytes.extend_from_slice(&(group.len() as u32).to_le_bytes());
            for (_, hash) in group {
                bytes.extend_from_slice(&hash.0);
            }
        }
        Some(KeyValue::new(KEY.into(), STANDARD.encode(bytes)))
    }

    /// Reads the hashes in the footer of a file.
    pub(crate) fn read(key: &str, entries: &[KeyValue]) -> Result<Self> {
        let entry = entries.iter().find(|entry| entry.key == KEY);
        let Some(text) = entry.and_then(|entry| entry.value.as_deref()) else {
            return Ok(Self::default());
        };
        if text.len() > MAX_TEXT {
            return Err(Error::damaged(key, "the list of pushes is too long"));
        }
        let malformed = || Error::damaged(key, "the list of pushes is malformed");
        let bytes = STANDARD.decode(text).map_err(|_| malformed())?;
        match bytes.split_first() {
            Some((&VERSION, groups)) => Self::of_groups(groups).ok_or_else(malformed),
            Some((version, _)) => Err(Error::Invalid(format!(
                "{key}: the list of pushes has version {version}, which this program does not know"
            ))),
            None => Err(malformed()),
        }
    }

    /// Reads the groups of a list: an hour, the number of its hashes, and the hashes.
    fn of_groups(mut groups: &[u8]) -> Option<Self> {
        let mut hashes = Self::default();
        while !groups.is_empty() {
            let (hour, rest) = groups.split_first_chunk::<4>()?;
            let (count, rest) = rest.split_first_chunk::<4>()?;
            let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
            let (group, rest) = rest.split_at_checked(count.checked_mul(LENGTH)?)?;
            let received = Hour(u32::from_le_bytes(*hour));
            for hash in group.as_chunks::<LENGTH>().0 {
                hashes.add(PushHash(*hash), received);
            }
            groups = rest;
        }
        Some(hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Hour = Hour(498_900);

    fn hash(number: u32) -> PushHash {
        PushHash(u128::from(number).to_be_bytes())
    }

    fn read(bytes: &[u8]) -> Result<PushHashes> {
        let entry = KeyValue::new(KEY.into(), STANDARD.encode(bytes));
        PushHashes::read("a.parquet", &[entry])
    }

    #[test]
    fn hashes_are_read_back_from_the_footer() {
        let mut hashes = PushHashes::default();
        assert_eq!(hashes.entry(), None);
        for number in 0..1000 {
            hashes.add(hash(number), Hour(NOW.0 - number % 3));
        }
        let entry = hashes.entry().unwrap();
        // The cost of a push: less than 22 bytes.
        assert!(entry.value.as_ref().unwrap().len() < 22 * 1000);
        let other = KeyValue::new("other".into(), "x".to_owned());
        assert_eq!(PushHashes::read("a", &[other.clone(), entry]).unwrap(), hashes);
        // A file of an earlier version has no list.
        assert!(PushHashes::read("a", &[other]).unwrap().is_empty());
        assert!(PushHashes::read("a", &[]).unwrap().is_empty());
    }

    #[test]
    fn long_list_loses_the_earliest_hashes() {
        let mut hashes = PushHashes::default();
        for number in 0..PushHashes::MAX as u32 {
            hashes.add(hash(number), NOW);
        }
        let full = hashes.clone();
        hashes.add(hash(u32::MAX), Hour(NOW.0 - 1));
        assert_eq!(hashes, full);
        let mut newer = PushHashes::default();
        newer.add(hash(u32::MAX), Hour(NOW.0 + 1));
        hashes.absorb(&newer);
        assert_eq!(hashes.len(), PushHashes::MAX);
        assert!(hashes.iter().any(|(one, _)| one == hash(u32::MAX)));
        let entry = hashes.entry().unwrap();
        assert!(entry.value.as_ref().unwrap().len() < MAX_TEXT);
        assert_eq!(PushHashes::read("a", &[entry]).unwrap(), hashes);
    }

    #[test]
    fn old_hashes_and_those_of_the_future_are_dropped() {
        let mut hashes = PushHashes::default();
        let oldest = NOW.0 - PushHashes::HOURS;
        for hour in [0, oldest - 1, oldest, NOW.0, NOW.0 + 1, NOW.0 + 2, u32::MAX] {
            hashes.add(hash(hour), Hour(hour));
        }
        hashes.keep_known(NOW.start());
        let hours: Vec<_> = hashes.iter().map(|(_, received)| received.0).collect();
        assert_eq!(hours, [oldest, NOW.0, NOW.0 + 1]);
    }

    #[test]
    fn wrong_lists_are_errors_that_name_the_file() {
        let group = |hour: u32, count: u32, length: usize| {
            let numbers = [hour.to_le_bytes(), count.to_le_bytes()].concat();
            [vec![VERSION], numbers, vec![7; length]].concat()
        };
        assert_eq!(read(&group(5, 2, 32)).unwrap().len(), 1);
        assert!(read(&[VERSION]).unwrap().is_empty());
        for bytes in [
            Vec::new(),
            vec![VERSION, 1, 2, 3],
            group(5, 1, 15),
            group(5, 1, 17),
            group(5, 2, 16),
            group(u32::MAX, u32::MAX, 16),
        ] {
            let error = read(&bytes).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("a.parquet"), "{error}");
        }
        for text in ["!".to_owned(), "A".repeat(MAX_TEXT + 4)] {
            let entry = KeyValue::new(KEY.into(), text);
            assert!(PushHashes::read("a", &[entry]).is_err());
        }
        let error = read(&[VERSION + 1, 0]).unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
    }

    proptest! {
        #[test]
        fn no_list_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), is_first in any::<bool>()) {
            let mut bytes = bytes;
            if is_first {
                bytes.insert(0, VERSION);
            }
            if let Ok(mut hashes) = read(&bytes) {
                hashes.keep_known(UnixNanos(u64::MAX));
            }
        }
    }
}
