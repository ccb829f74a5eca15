//! Requests to a whole router, without a socket.

mod contract;
mod grouping;
mod jobs;
mod profiles;
mod sites;
