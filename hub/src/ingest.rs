//! Data from hosts: reports through the journal, bundles through uploads.

pub mod accept;
pub mod act;
pub mod arrivals;
pub mod debug_file;
pub mod deliver;
pub mod entry;
pub mod journal;
pub mod key_group;
pub mod late;
pub mod outbox;
pub mod record;
pub mod regroup;
pub mod regroup_all;
pub mod rules;
pub mod samples;
pub mod states;
pub mod stored_crash;
pub mod take_over;
pub mod tick;
pub mod upload;
pub mod versions;
pub mod worker;

#[cfg(test)]
pub(crate) mod tests;
