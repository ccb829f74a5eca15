//! Heartbeats: what a host runs, from which the hub orders builds.

use crate::VERSION;
use crate::report::{InvalidReport, check_count, check_name};
use serde::{Deserialize, Serialize};

/// The most builds of a heartbeat.
const MAX_BUILDS: usize = 2048;

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

impl Heartbeat {
    /// Checks the limits of all fields.
    ///
    /// # Errors
    /// Fails if there are too many builds, or a name is too long or cannot be printed.
    pub fn check(&self) -> Result<(), InvalidReport> {
        if self.version == 0 || self.version > VERSION {
            return Err(InvalidReport::Version(self.version));
        }
        check_name("host", &self.host)?;
        check_name("collector", &self.collector)?;
        check_count("builds", self.running.len(), MAX_BUILDS)?;
        for run in &self.running {
            check_name("service", &run.service)?;
            check_name("build", &run.build)?;
        }
        Ok(())
    }
}
