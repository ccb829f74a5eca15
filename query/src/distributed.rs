//! Queries in several processes: a coordinator plans, and workers run parts of the plan.

mod codec;
mod coordinator;
mod names_exec;
mod token;
mod wire;
mod worker;

pub(crate) use coordinator::{bytes_scanned, coordinate, is_distributed, reachable};
pub(crate) use token::Token;
pub(crate) use wire::NameContext;
pub(crate) use worker::{WorkerLimits, serve};
