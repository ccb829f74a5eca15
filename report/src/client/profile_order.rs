//! A request for a profile, as the hub hands it to an agent.

use serde::Deserialize;

/// The profile that a person wants of this host now.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProfileOrder {
    /// The identifier.
    pub id: String,
    /// The event, as `cpu`.
    pub event: String,
    /// The samples a second of each busy processor.
    pub frequency: u64,
    /// The length in seconds.
    pub seconds: u64,
}
