//! The Debug Adapter Protocol over the debugger of a trace: what editors drive it by.
//!
//! [`serve`] speaks it over one pair of streams, [`listen`] over TCP. A task reads messages and answers what cannot wait
//! ([`serve`]'s module), one thread works at the requests in their order ([`adapter`]), a task writes. The types of the
//! protocol are [generated](protocol::types); everything that the adapter knows of traces is the debugger's.
#![forbid(unsafe_code)]

mod adapter;
mod codec;
mod debuggee;
mod dispatch;
mod failure;
mod fetch;
mod handles;
mod outbox;
mod own;
mod pending;
mod progress;
pub mod protocol;
mod requests;
mod serve;
mod sources;
mod stopped;

pub use serve::{listen, serve, standard};
