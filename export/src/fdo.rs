//! Feedback for compilers and linkers: branches of a binary, from traces and from LBR.
//!
//! A [`FdoBinary`] is the binary that a build with feedback replaces. [`branches_of_session`]
//! counts its branches in a trace. [`branches_of_script`] and [`branches_of_perf_data`] count them
//! in last branch records. The outputs are in [`backtrail_profile::fdo`].

mod binary;
mod call_stack;
mod lbr;
mod trace;

pub use binary::FdoBinary;
pub use lbr::{LbrCounts, branches_of_perf_data, branches_of_recording, branches_of_script};
pub use trace::{branches_of_session, contexts_of_session};
