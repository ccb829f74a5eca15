//! The hub: the server that keeps the crashes of a team.
//!
//! Hosts send small [reports](backtrail_report::CrashReport), and a bundle when the hub asks for
//! it. The hub groups crashes, orders builds, shows pages, sends alerts, and serves symbols. It
//! runs alone with a directory and SQLite, or as several equal processes on a bucket and
//! PostgreSQL. [docs/hub.md](../../docs/hub.md) is for administrators.
//!
//! # Data flow
//!
//! ```text
//! report ─ journal (objects) ─ database ─ receipt       bundle ─ upload ─ child process ─ objects
//!                                  │                                         │ analysis
//!                            stack keys ◄──────────── signature ◄────────────┘
//!                                  │
//!                            groups ─ states ─ outbox ─ webhooks, mail
//!                                  └─ pages, API
//! ```
//!
//! # Modules, from the bottom
//!
//! | module | owns | must not know |
//! |---|---|---|
//! | [`stack`] | frames with and without symbols | everything else |
//! | [`grouping`] | signatures, rules, explanations: pure functions | the database, HTTP |
//! | [`lifecycle`] | states of groups, order of builds, sampling: pure functions | the database, HTTP |
//! | [`objects`] | keys and content of the object store | SQL, HTTP |
//! | [`database`] | tables and transactions | HTTP, objects |
//! | [`analysis`] | the child process that reads a bundle, and its result | SQL, HTTP |
//! | [`symbols`] | debug files by build id, upstream servers | HTTP routes |
//! | [`notify`] | alerts to webhooks and mail | HTTP routes |
//! | [`profiles`] | pushed profiles, their way into the profile store, selections | HTTP routes |
//! | [`query_jobs`] | scheduled queries of profiles, their results and thresholds | HTTP routes |
//! | [`ingest`] | reports, uploads, accepted bundles | HTTP routes |
//! | [`admin`] | backup, restore, garbage collection, new indexes | HTTP routes |
//! | [`server`] | routes, authentication, pages | SQL, objects: it calls the others |
//!
//! # Invariants
//!
//! - A receipt is sent after the report is in the object store and in the database.
//! - An object is written before the row that names it. An object without a row is garbage after a
//!   day. A row without its object is an error that names both.
//! - The hub's own process parses no bundle, ELF or DWARF. A child process without privileges does.
//! - Counts belong to stack keys (`stack_keys`). Groups are sets of keys. New symbols or rules move
//!   whole keys between groups.
//! - Each text that a crash controls is escaped where it is shown.
#![forbid(unsafe_code)]

pub mod access;
pub mod admin;
pub mod analysis;
pub mod clock;
pub mod config;
pub mod data_lock;
pub mod database;
pub mod error;
pub mod grouping;
pub mod hub;
pub mod ingest;
pub mod lifecycle;
pub mod notify;
pub mod objects;
pub mod package_files;
pub mod profiles;
pub mod query_jobs;
pub mod serve;
pub mod server;
pub mod stack;
pub mod symbols;
pub mod unit;

pub use error::{Error, Result};
