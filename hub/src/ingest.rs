//! Data from hosts: reports through the journal, bundles through uploads.

pub mod accept;
pub mod entry;
pub mod journal;
pub mod record;
pub mod regroup;
pub mod upload;
pub mod worker;
