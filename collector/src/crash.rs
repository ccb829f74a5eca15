//! A crash, from the handler's request to the bundle.

mod core_file;
mod head;
mod image;
mod live;
mod memory;
mod reachable;
mod save;
mod sightings;
mod snapshot;

pub use save::{Job, Saved, Saver, Waiting};
pub use sightings::{Sighting, Sightings};
pub use snapshot::Snapshot;
