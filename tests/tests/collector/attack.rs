//! Attacks by other users: each finding of a security review, as a test that failed before its fix.

mod adapter;
mod bundles;
mod crashes;
mod recorder;
mod soak;
mod text;
