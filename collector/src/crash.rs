//! A crash, from the handler's request to the bundle.

mod deposit;
mod head;
mod hold;
mod progress;
mod room;
mod save;
mod sightings;
mod snapshot;

pub use deposit::Deposit;
pub use hold::{Hold, Holds, Waiting};
pub use progress::Progress;
pub use room::Promises;
pub use save::{Saved, Saver};
pub(crate) use sightings::FROZEN;
pub use sightings::{Sighting, Sightings};
pub use snapshot::Snapshot;
