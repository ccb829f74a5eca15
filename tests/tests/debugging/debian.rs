//! Debian's sqlite3, redis-server and python3, and a Rust program with debug symbols. Each crashes
//! while it is recorded, and is debugged to the cause, as an engineer would.
//!
//! Each module describes its defect. Programs are the stripped ones of the packages: sqlite3 and
//! redis-server have the names of exported functions, python3 has the debug symbols of
//! `python3-dbg`. A test is skipped with a message if its package is not installed.

mod captures;
mod first_screens;
mod orders;
mod python;
mod redis;
mod source;
mod sqlite;
mod tutorial;
mod verbs;
mod walk;
