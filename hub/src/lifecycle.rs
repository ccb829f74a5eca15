//! States of groups, the order of builds, and the choice of samples: pure functions.
//!
//! Each function takes facts and returns a decision. The caller stores the decision in one
//! transaction. Equal facts have an equal decision on every hub, so that two hubs that see the same
//! report announce one [`Event`] with one [`once`](Event::once) key.
//!
//! Unknown is a result of its own. If the order of two builds is undetermined, the state stays and
//! no alert is sent. The page says so.

pub mod builds;
pub mod escalation;
pub mod sampling;
pub mod state;

pub use builds::{BuildOrder, Builds};
pub use escalation::{Escalation, HostShare};
pub use sampling::{SampleFacts, StoredSample};
pub use state::{Action, ArchiveCondition, Event, EventKind, Fix, InvalidAction, State, Status, Transition};

#[cfg(test)]
mod tests;
