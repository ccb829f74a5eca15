//! The Debug Adapter Protocol over the debugger of a trace: what editors drive it by.
//!
//! [`standard`] speaks it over standard input and output, [`listen`] with clients that connect. A task reads messages and answers what cannot wait
//! (`serve`), one thread works at the requests in their order ([`adapter`]), a task writes. The types of the
//! protocol are [generated](protocol::types); everything that the adapter knows of traces is the debugger's.
#![forbid(unsafe_code)]

mod access;
mod adapter;
mod codec;
mod debuggee;
mod dispatch;
mod failure;
mod fetch;
mod handles;
mod listen;
mod outbox;
mod own;
mod peer;
mod pending;
mod progress;
pub mod protocol;
mod requests;
mod serve;
mod sources;
mod stopped;
mod text;

pub use access::{Access, Origin};
pub use codec::Decoder;
pub use listen::{Address, Notice, listen};
pub use serve::{serve, standard};
