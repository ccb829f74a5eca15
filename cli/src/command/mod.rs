//! The commands, one file each.

pub mod check;
#[cfg(feature = "collector")]
pub mod collect;
#[cfg(all(feature = "collector", feature = "hub"))]
pub mod collect_sender;
#[cfg(all(feature = "collector", feature = "hub"))]
pub mod collect_sources;
pub mod completions;
#[cfg(feature = "collector")]
pub mod core_guard;
#[cfg(feature = "collector")]
pub mod core_handler;
#[cfg(feature = "collector")]
pub mod core_worker;
#[cfg(feature = "collector")]
pub mod crashes;
#[cfg(feature = "dap")]
pub mod dap;
pub mod debug;
#[cfg(feature = "collector")]
pub mod doctor;
pub mod dump;
pub mod export;
#[cfg(feature = "profile")]
pub mod fdo;
pub mod import;
pub mod info;
#[cfg(feature = "collector")]
pub mod install;
pub mod last_word;
pub mod latency;
#[cfg(feature = "hub")]
pub mod login;
#[cfg(feature = "hub")]
pub mod open_link;
pub mod pack;
#[cfg(feature = "collector")]
pub mod package_files;
#[cfg(feature = "profile")]
pub mod profile;
#[cfg(feature = "hub")]
pub mod push;
#[cfg(all(feature = "hub", feature = "profile"))]
pub mod push_symbols;
pub mod record;
#[cfg(feature = "collector")]
pub mod snapshot;
