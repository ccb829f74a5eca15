//! The collector: programs crash under it, and people attack it.
#![cfg(test)]

mod attack;
mod collect;
mod collector;
