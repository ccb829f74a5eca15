//! The messages of the protocol.

pub mod lenient;
pub mod message;
pub mod types;
