//! The Debug Adapter Protocol over the debugger of a trace, for editors.
//!
//! [`standard`] serves a client over standard input and output. [`listen`] serves clients that
//! connect; it exists on Linux only, where the kernel reports the user of a connection. A task
//! reads messages and answers those that cannot wait (`streams`). One thread handles requests in
//! their order (`server`), and a task writes. `session` is the state of one client; it knows no
//! request handler. The types of the protocol are [generated](protocol::types).
#![forbid(unsafe_code)]

mod access;
mod breakpoint_table;
mod call_list_cache;
mod codec;
mod debuggee;
mod dispatch;
mod extensions;
mod failure;
mod fetch;
mod handles;
mod latency_cache;
mod line_numbering;
#[cfg(target_os = "linux")]
mod listen;
mod origin;
mod outbox;
#[cfg(target_os = "linux")]
mod peer;
mod pending;
mod progress;
pub mod protocol;
mod requests;
mod server;
mod session;
mod sources;
mod stop_events;
mod streams;
mod text;
mod variable_note;

pub use access::{Access, HubToken, Origin};
pub use codec::Decoder;
#[cfg(target_os = "linux")]
pub use listen::{Address, Notice, listen};
pub use streams::{serve, standard};
