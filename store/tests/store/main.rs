//! Tests of the store over object stores in memory and in a directory.

mod damage;
mod fixture;
mod model;
mod queries;
mod round_trip;
