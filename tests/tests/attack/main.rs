//! Attacks on what Backtrail reads and serves: each is refused, or answered in bounded time and memory.
#![cfg(test)]

mod bundles;
