//! What hosts send: reports through the journal, bundles through uploads.

pub mod entry;
pub mod journal;
pub mod record;
pub mod upload;
