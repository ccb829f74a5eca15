//! The always-on collector: saves the last moments of a crashing process to disk at once.
//!
//! From the bottom up: [`config`] has the settings, and [`runtime`] and [`spool`] are the two
//! directories. [`probe`] reports crashes within a fraction of a millisecond. [`hardware`] keeps
//! the traces of all processors. [`pattern`], [`handler`] and [`guard`] make the kernel hold a
//! crashing process. [`crash`] saves it as a bundle, and [`daemon`] runs all of this. [`sender`]
//! starts the process that sends crashes to a hub, and [`profile_agent`] the one that makes
//! profiles. [`wire`] has the messages between its processes, and [`unit`] the systemd units.
#![cfg(target_os = "linux")]

pub mod client;
mod clock;
pub mod config;
pub mod control;
pub mod crash;
pub mod daemon;
mod error;
pub mod guard;
pub mod handler;
pub mod hardware;
mod heap;
mod history;
pub mod limit;
pub mod link;
pub mod metrics;
mod ownership;
pub mod pattern;
mod permits;
pub mod privilege;
pub mod probe;
pub mod profile_agent;
mod quota;
pub mod realtime;
pub mod recorder_client;
mod restart;
pub mod runtime;
pub mod sender;
pub mod spool;
mod trust;
pub mod unit;
pub mod users;
pub mod wire;
pub mod worker;

pub use config::Config;
pub use error::{Error, Result};
pub use runtime::Runtime;
