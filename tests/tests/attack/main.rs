//! What somebody who means no good would try: each finding of a security review, as a test that failed before it was mended.
#![cfg(test)]

mod adapter;
mod bundles;
#[path = "../support/collector.rs"]
mod collector;
mod crashes;
mod recorder;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod text;
