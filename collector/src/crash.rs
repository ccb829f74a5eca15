//! Saves a crash: from the handler's request to the bundle.

mod deposit;
mod disk_budget;
mod head;
mod held;
mod pending;
mod progress;
mod save;
mod snapshot;

pub use deposit::Deposit;
pub use disk_budget::DiskBudget;
pub use held::{HeldProcess, HeldProcesses, HoldRequest, Holder};
pub(crate) use pending::FROZEN_QUOTA;
pub use pending::{PendingCrash, PendingCrashes};
pub use progress::Progress;
pub use save::{SaveOutcome, Saver};
pub use snapshot::SnapshotRequest;
