//! The HTTP server: routes, pages, authentication, limits and headers.

pub mod api;
pub mod assets;
pub mod caller;
pub mod failure;
pub mod grpc;
pub mod guard;
pub mod headers;
pub mod jobs;
pub mod listen;
pub mod pages;
pub mod profiles;
pub mod rate;
pub mod route;
pub mod routes;
pub mod site;
pub mod sites;
pub mod symbols;

#[cfg(test)]
mod tests;
