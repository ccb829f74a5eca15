//! What an attacker sends, and what it must not do.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod adapter;
mod text;
