//! The hub of a team: settings, reports, transfers and downloaded bundles.

pub mod cache;
pub mod report;
pub mod send_each;
pub mod settings;
pub mod transfer;
