//! Debian's sqlite3, redis-server and python3, and a Rust program with debug symbols: each crashes while it is recorded,
//! and is debugged to the cause, as an engineer would.
//!
//! What is wrong with each is said in its module. Programs are the ones that their packages ship, stripped: sqlite3 and
//! redis-server have the names of exported functions, python3 has the debug symbols of `python3-dbg`. A test whose
//! package is not installed says so and is skipped.

mod captures;
mod orders;
mod python;
mod redis;
mod source;
mod sqlite;
mod tutorial;
mod verbs;
mod walk;
