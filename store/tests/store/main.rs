//! Tests of the store over object stores in memory and in a directory.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod compaction;
mod damage;
mod fixture;
mod garbage;
mod hooked_catalog;
mod model;
mod pushes;
mod queries;
mod readers;
mod recovery;
mod round_trip;
