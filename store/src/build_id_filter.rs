//! A Bloom filter of build ids.

use backtrail_pt::BuildId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Bits per build id. With seven probes, one of about 120 foreign ids is taken for a member.
const BITS_PER_ID: usize = 10;
/// The probes of an id.
const PROBES: usize = 7;
/// The maximum size. A filter of more ids is less selective, but never wrong.
const MAX_BYTES: usize = 4096;

/// A Bloom filter of build ids. It never denies a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildIdFilter {
    bits: Box<[u8]>,
}

impl BuildIdFilter {
    /// Builds the filter of the given ids.
    pub fn new<'a>(ids: impl ExactSizeIterator<Item = &'a BuildId>) -> Self {
        let bytes = (ids.len() * BITS_PER_ID).div_ceil(8).min(MAX_BYTES);
        let mut bits = vec![0; bytes].into_boxed_slice();
        for id in ids {
            for probe in probes(id, bytes) {
                if let Some(byte) = bits.get_mut(probe / 8) {
                    *byte |= 1 << (probe % 8);
                }
            }
        }
        Self { bits }
    }

    /// Returns whether the id may be a member. `false` is certain.
    #[must_use]
    pub fn may_contain(&self, id: &BuildId) -> bool {
        let is_set = |probe: usize| {
            let byte = self.bits.get(probe / 8);
            byte.is_some_and(|byte| byte & (1 << (probe % 8)) != 0)
        };
        !self.bits.is_empty() && probes(id, self.bits.len()).all(is_set)
    }
}

/// Returns the bits of an id in a filter of `bytes` bytes, which must not be 0.
fn probes(id: &BuildId, bytes: usize) -> impl Iterator<Item = usize> {
    let digest = Sha256::digest(id.as_bytes());
    (0..PROBES).map(move |probe| {
        let bytes_of = digest.iter().skip(probe * 4).take(4);
        let number = bytes_of.fold(0usize, |number, byte| (number << 8) | usize::from(*byte));
        number % (bytes * 8).max(1)
    })
}

impl Serialize for BuildIdFilter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.bits))
    }
}

impl<'de> Deserialize<'de> for BuildIdFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let bits = STANDARD.decode(&*text).map_err(serde::de::Error::custom)?;
        Ok(Self { bits: bits.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> BuildId {
        BuildId::new(&number.to_be_bytes()).unwrap()
    }

    #[test]
    fn members_are_never_denied_and_few_others_match() {
        let members: Vec<_> = (0..300).map(id).collect();
        let filter = BuildIdFilter::new(members.iter());
        assert!(members.iter().all(|id| filter.may_contain(id)));
        let others = (1000..11_000).filter(|number| filter.may_contain(&id(*number)));
        let count = others.count();
        assert!(count < 200, "{count} of 10000");
    }

    #[test]
    fn empty_filter_has_no_members() {
        assert!(!BuildIdFilter::default().may_contain(&id(1)));
    }

    #[test]
    fn filter_is_read_back_from_json() {
        let members: Vec<_> = (0..3).map(id).collect();
        let filter = BuildIdFilter::new(members.iter());
        let text = serde_json::to_string(&filter).unwrap();
        assert_eq!(serde_json::from_str::<BuildIdFilter>(&text).unwrap(), filter);
        assert!(serde_json::from_str::<BuildIdFilter>("\"!\"").is_err());
    }
}
