//! The commands, one file each.

pub mod check;
pub mod collect;
pub mod completions;
pub mod core_guard;
pub mod core_handler;
pub mod core_worker;
pub mod crashes;
pub mod dap;
pub mod debug;
pub mod doctor;
pub mod dump;
pub mod export;
pub mod import;
pub mod info;
pub mod install;
pub mod last_word;
pub mod latency;
pub mod pack;
pub mod package_files;
pub mod record;
pub mod snapshot;
