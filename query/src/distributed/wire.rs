//! The list of segments and symbols that workers need for names.

use crate::request::Symbol;
use crate::{Error, Result};
use backtrail_store::{Hour, SegmentEntry, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The segments and symbols of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameContext {
    /// The ids of segments with their hours.
    segments: Vec<(SegmentId, Hour)>,
    /// The functions that the request brings.
    symbols: Vec<Symbol>,
}

impl NameContext {
    /// Builds the list for a query.
    pub(crate) fn new(segments: &[SegmentEntry], symbols: &[Symbol]) -> Self {
        Self {
            segments: segments
                .iter()
                .map(|segment| (segment.id, segment.hour))
                .collect(),
            symbols: symbols.to_vec(),
        }
    }

    /// Returns the hour of each segment.
    pub(crate) fn hours(&self) -> HashMap<SegmentId, Hour> {
        self.segments.iter().copied().collect()
    }

    /// Returns the symbols.
    pub(crate) fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Returns the bytes of a message.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::Failed(error.to_string()))
    }

    /// Reads the bytes of a message.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| Error::Failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_read_back_or_refused() {
        let context = NameContext {
            segments: vec![("0".repeat(32).parse().unwrap(), Hour(7))],
            symbols: vec![Symbol {
                build_id: "ff".into(),
                offset: 1,
                functions: vec!["main".into()],
            }],
        };
        let bytes = context.encode().unwrap();
        assert_eq!(NameContext::decode(&bytes).unwrap(), context);
        assert!(NameContext::decode(&bytes[1..]).is_err());
    }
}
