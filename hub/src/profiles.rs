//! Profiles of a fleet: the pushes of several clients, the way into the store, and selections.

pub mod build_units;
pub mod builds;
pub mod catalog;
pub mod changed_branches;
pub mod charts;
pub mod compaction_counts;
pub mod compare;
pub mod explorer;
pub mod idle;
pub mod intake;
pub mod maintain;
pub mod metrics;
pub mod names;
pub mod origin;
pub mod push;
pub mod query;
mod query_program;
pub mod query_worker;
pub mod read;
pub mod read_push;
pub mod regressions;
pub mod selection;
pub mod sites;
pub mod sql;
pub mod sql_view;
pub mod top;
pub mod view;
