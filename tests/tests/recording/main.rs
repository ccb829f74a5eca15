//! The software recorder: programs run as they do without it, and their traces are exact.
#![cfg(test)]

mod attached;
mod decoders;
mod killed;
mod matrix;
mod musl_contexts;
mod processes;
mod real_programs;
mod record;
mod replayed;
mod request_context;
mod rewritten;
mod sharing;
mod signals;
mod spawned;
mod standard_error;
mod stress;
mod summary;
mod translations;
mod transparent;
