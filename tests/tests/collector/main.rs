//! The collector: crashes of programs, and attacks by other users.
#![cfg(test)]

mod attack;
mod collect;
mod collector;
mod hub;
mod hub_content;
mod hub_kills;
mod hub_profiles;
