//! The captures.
