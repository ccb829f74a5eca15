//! A crash, from the handler's request to the bundle.

mod core_file;
mod head;
mod image;
mod live;
mod memory;
mod progress;
mod reachable;
mod save;
mod sightings;
mod snapshot;

pub use progress::Progress;
pub use save::{Job, Saved, Saver, Waiting};
pub(crate) use sightings::FROZEN;
pub use sightings::{Sighting, Sightings};
pub use snapshot::Snapshot;
