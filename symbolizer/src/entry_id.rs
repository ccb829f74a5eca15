//! Ids of debugging information entries.

/// The id of an entry in the debug information of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// The offset in `.debug_info`; `.debug_types` counts as following it.
    pub(crate) offset: usize,
    /// Whether the entry is in the supplementary file.
    pub(crate) supplementary: bool,
}
