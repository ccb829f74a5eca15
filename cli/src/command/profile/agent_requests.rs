//! Profiles on request: the hub asks for one of this host, beside those of all times.
//!
//! The recorder that runs takes them, so that it need not read the state of all processes again.

use super::record_options::sampled_events;
use crate::args::ProfileEvent;
use crate::exit::Failure;
use crate::terminal;
use backtrail_profiler::{RequestOptions, Requester, StackMethod};
use backtrail_report::client::{Error, HubClient, ProfileOrder, ProfileOrigin};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pause after a failed question.
const PAUSE: Duration = Duration::from_secs(10);
/// The time between two checks whether the agent ends.
const LOOK: Duration = Duration::from_millis(200);
/// The longest profile, and the highest rate. A hub cannot ask for more.
const MOST: (u64, u64) = (600, 2000);
/// The largest profile in bytes, which the hub takes in one request.
const MAX_BYTES: u64 = 30 << 20;

/// The part of an agent that takes requests.
pub struct Requests<'a> {
    /// The hub.
    pub client: HubClient,
    /// The origin of this host's profiles.
    pub origin: ProfileOrigin,
    /// The recorder of all processes.
    pub requester: Requester,
    /// The directory for files.
    pub spool: &'a Path,
    /// The way in which stacks are walked.
    pub stack_method: StackMethod,
    /// The processor time that recording may take, in percent.
    pub cpu_budget: f64,
    /// Whether the agent was asked to end.
    pub stop: &'a AtomicBool,
    /// Whether the agent has ended.
    pub is_over: &'a AtomicBool,
}

impl Requests<'_> {
    /// Takes requests until the agent ends.
    pub fn run(&self) {
        let mut has_failed = false;
        while !self.is_ending() {
            match self.client.next_profile_request(&self.origin.host) {
                Ok(None) => has_failed = false,
                Ok(Some(order)) => {
                    has_failed = false;
                    self.take(&order);
                }
                Err(error) => {
                    if !has_failed && !self.is_ending() {
                        terminal::print_error(&format!("cannot take requests: {error}"));
                    }
                    has_failed = true;
                    self.pause();
                }
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_over.load(Ordering::Relaxed)
    }

    fn pause(&self) {
        let mut left = PAUSE;
        while !left.is_zero() && !self.is_ending() {
            std::thread::sleep(LOOK);
            left = left.saturating_sub(LOOK);
        }
    }

    /// Records a profile, sends it, and reports the end of the request.
    fn take(&self, order: &ProfileOrder) {
        let problem = match self.profile(order) {
            Ok(profile) => self.send(order, &profile).err().map(|error| error.to_string()),
            Err(failure) => Some(failure.message().to_owned()),
        };
        let ended = self
            .client
            .end_profile_request(&order.id, &self.origin.host, problem.as_deref());
        if let Err(error) = ended {
            terminal::print_error(&format!("cannot report the end of request {}: {error}", order.id));
        }
    }

    fn send(&self, order: &ProfileOrder, profile: &[u8]) -> Result<(), Error> {
        let origin = ProfileOrigin {
            request: order.id.clone(),
            ..self.origin.clone()
        };
        self.client.send_profile(&origin, profile)
    }

    fn profile(&self, order: &ProfileOrder) -> Result<Vec<u8>, Failure> {
        let failed = |error: std::io::Error| Failure::failed(format_args!("cannot write a profile: {error}"));
        let event = ProfileEvent::fixed(&order.event).ok_or_else(|| {
            Failure::failed(format_args!("this agent does not know the event {}", order.event))
        })?;
        std::fs::create_dir_all(self.spool).map_err(failed)?;
        let folder = tempfile::tempdir_in(self.spool).map_err(failed)?;
        let path = folder.path().join("requested");
        self.requester.record(&RequestOptions {
            events: sampled_events(&[event], None)?,
            frequency: order.frequency.clamp(1, MOST.1),
            stack_method: self.stack_method,
            duration: Duration::from_secs(order.seconds.clamp(1, MOST.0)),
            path: path.clone(),
            max_bytes: MAX_BYTES,
            cpu_budget: self.cpu_budget,
        })?;
        std::fs::read(&path).map_err(failed)
    }
}
