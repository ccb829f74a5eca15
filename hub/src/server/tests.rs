//! Requests to a whole router, without a socket.

mod contract;
mod grouping;
mod jobs;
mod profile_races;
mod profile_store;
mod profile_sums;
mod profiles;
mod sites;
mod sql_views;
