//! Feedback for compilers and linkers, from branches: counts of branches and of straight code.
//!
//! A [`BranchProfile`] adds up branches of one binary, which last branch records (LBR) or Intel PT
//! recorded. [`autofdo`] turns it into a sample profile for clang's `-fprofile-sample-use`, and
//! [`bolt`] into input for `perf2bolt` and `llvm-bolt`.

pub mod autofdo;
mod binary;
pub mod bolt;
mod branch_profile;
mod discriminator;
mod disjoint;
mod function_samples;
mod report;

pub use binary::{Binary, SourceFrame};
pub use branch_profile::{Branch, BranchCount, BranchProfile, CodeRange};
pub use function_samples::{FunctionSamples, SourceLine};
pub use report::{BranchReport, CodePlace, Loop, MispredictedBranch};
