//! Heartbeats: what a host runs, from which the hub orders builds.

use serde::{Deserialize, Serialize};

/// A host's statement about itself, sent every few minutes.
///
/// The hub orders the builds of a service by the time at which any host first ran them. Hosts that
/// send heartbeats are the denominator of "share of hosts".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The version of the format.
    pub version: u32,
    /// The host's name.
    pub host: String,
    /// The version of the collector.
    pub collector: String,
    /// The builds that run now.
    #[serde(default)]
    pub running: Vec<RunningBuild>,
}

/// A build of a service that a host runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningBuild {
    /// The service, as in [`CrashReport::service`](crate::CrashReport::service).
    pub service: String,
    /// The build, as in [`CrashReport::build`](crate::CrashReport::build).
    pub build: String,
    /// The time at which this host first ran it, in microseconds since 1970.
    pub since: u64,
}
