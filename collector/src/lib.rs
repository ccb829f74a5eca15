//! The always-on collector: when a process crashes, its last moments are on the disk before anybody knows of it.
//!
//! From the bottom up: [`config`] says what to do, [`runtime`] and [`spool`] are the two directories, [`probe`] tells of
//! crashes within a fraction of a millisecond,
//! [`hardware`] keeps the processors' traces, [`pattern`], [`handler`] and [`guard`]
//! have the kernel keep a process that crashes, [`crash`] makes a bundle of it, and [`daemon`] runs all that.
//! [`wire`] is what its processes say to each other, [`unit`] how systemd starts them.
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
pub mod history;
pub mod limit;
pub mod link;
pub mod metrics;
mod ownership;
pub mod pattern;
mod permits;
pub mod privilege;
pub mod probe;
mod quota;
pub mod realtime;
pub mod recorder_client;
pub mod runtime;
pub mod spool;
mod trust;
pub mod unit;
pub mod users;
pub mod wire;
pub mod worker;

pub use config::Config;
pub use error::{Error, Result};
pub use runtime::Runtime;
