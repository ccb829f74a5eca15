//! Recordings on request, beside one that samples all processes.
//!
//! A request has events and a file of its own. It shares the state of all processes with the
//! recording that runs, as their mappings and the unwind tables of their files. So it begins in a
//! fraction of a second on a host with many processes.

use crate::clock::{Clock, monotonic};
use crate::event::SampledEvent;
use crate::open_events::{EventOptions, OpenEvents};
use crate::options::{StackMethod, Target};
use crate::sampler::SamplerOptions;
use crate::segment::RecordingFile;
use crate::summary::Summary;
use crate::{Error, Result};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The options of [`Requester::record`].
#[derive(Clone, Debug)]
pub struct RequestOptions {
    /// The events, without doubles.
    pub events: Vec<SampledEvent>,
    /// The samples a second of each busy processor.
    pub frequency: u64,
    /// The way in which stacks are walked.
    pub stack_method: StackMethod,
    /// The length of the recording.
    pub duration: Duration,
    /// The file, which must not exist.
    pub path: PathBuf,
    /// The size that the file stays below, apart from one block. Older samples are replaced.
    pub max_bytes: u64,
    /// The processor time that recording may take, in percent of all processors.
    pub cpu_budget: f64,
}

/// A request whose events are open.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub events: OpenEvents,
    pub file: RecordingFile,
    pub clock: Clock,
    pub duration: Duration,
    pub reply: Sender<Result<Summary>>,
}

/// Asks a running recording for further ones.
#[derive(Clone, Debug)]
pub struct Requester(Sender<OpenRequest>);

/// The requests that a recording takes.
#[derive(Debug)]
pub struct Requests(Receiver<OpenRequest>);

/// Returns the two ends of requests.
#[must_use]
pub fn requests() -> (Requester, Requests) {
    let (sender, receiver) = channel();
    (Requester(sender), Requests(receiver))
}

impl Requester {
    /// Records all processes into a file. The recording that takes requests does the work, and
    /// ends this one with itself.
    ///
    /// # Errors
    ///
    /// The reason why nothing can be recorded, and [`Error::Ended`] if no recording takes requests.
    pub fn record(&self, options: &RequestOptions) -> Result<Summary> {
        // The events are opened here, so that the running recording does not wait for that.
        let events = OpenEvents::open(&EventOptions {
            sampler: SamplerOptions {
                target: &Target::All,
                program: None,
                events: &options.events,
                frequency: options.frequency,
                sideband: false,
            },
            stack_method: options.stack_method,
            cpu_budget: options.cpu_budget,
        })?;
        let clock = Clock::now();
        let file = RecordingFile::create(&options.path, false, options.max_bytes, clock.unix(monotonic()))?;
        let (reply, answer) = channel();
        let request = OpenRequest {
            events,
            file,
            clock,
            duration: options.duration,
            reply,
        };
        self.0.send(request).map_err(|_| Error::Ended)?;
        answer.recv().map_err(|_| Error::Ended)?
    }
}

impl Requests {
    /// Returns the next request that waits.
    pub(crate) fn take(&self) -> Option<OpenRequest> {
        self.0.try_recv().ok()
    }
}
