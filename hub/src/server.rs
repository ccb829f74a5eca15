//! The HTTP server: routes, authentication, limits and headers.

pub mod api;
pub mod caller;
pub mod failure;
pub mod guard;
pub mod headers;
pub mod listen;
pub mod rate;
pub mod routes;
