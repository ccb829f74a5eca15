//! Feedback for compilers and linkers, from branches: counts of branches and of straight code.
//!
//! A [`BranchProfile`] adds up branches of one binary, which last branch records (LBR) or Intel PT
//! recorded. [`autofdo`] turns it into a sample profile for clang's `-fprofile-sample-use`,
//! [`bolt`] into input for `perf2bolt`, and [`fdata`] into input for `llvm-bolt`. A
//! [`ContextProfile`] has the counts of each calling context, and [`csspgo`] turns it into a sample
//! profile with contexts.

pub mod autofdo;
mod binary;
pub mod bolt;
mod branch_profile;
mod context_profile;
pub mod csspgo;
mod discriminator;
mod disjoint;
pub mod fdata;
mod function_samples;
pub mod pseudo_probe;
mod report;
mod unwind;

pub use binary::{Binary, LinkedFunction, SourceFrame, Transfer};
pub use branch_profile::{Branch, BranchCount, BranchProfile, CodeRange};
pub use context_profile::ContextProfile;
pub use function_samples::{FunctionSamples, SourceLine};
pub use report::{BranchReport, CodePlace, Loop, MispredictedBranch};
pub use unwind::HybridSample;
