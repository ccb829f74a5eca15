//! The messages of the protocol.
