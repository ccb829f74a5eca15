//! The traces of all processors as the daemon uses them: configured, frozen at a crash, and written
//! into bundles.

use crate::config::{Config, TraceConfig, TraceSource};
use crate::error::Result;
use crate::hardware::{Freezer, Frozen, Hardware, HardwareOptions, RecordedHistory, Scope};
use backtrail_pt::Pid;
use nix::poll::{PollFd, PollFlags, poll};
use std::io::PipeReader;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The traces of all processors.
#[derive(Debug)]
pub struct History(Mutex<Hardware>);

/// The longest time between two reads of the sideband.
const DRAIN_INTERVAL_MS: u16 = 500;

impl History {
    /// Starts tracing if it is configured and possible.
    ///
    /// # Errors
    /// When the configuration requires tracing and it is not possible.
    pub fn start(config: &Config) -> Result<Option<Self>> {
        let trace = &config.trace;
        if trace.source == TraceSource::None {
            return Ok(None);
        }
        match options(trace).and_then(|options| Hardware::start(&options)) {
            Ok(hardware) => {
                let capabilities = hardware.capabilities();
                tracing::info!("tracing with Intel PT, {} for each processor", trace.ring);
                if let Err(why) = capabilities.pause_in_kernel {
                    tracing::debug!("the kernel cannot pause the trace of a crashing processor: {why}");
                }
                Ok(Some(Self(Mutex::new(hardware))))
            }
            Err(error) if trace.source == TraceSource::Hardware => Err(error),
            Err(error) => {
                tracing::info!("not tracing with Intel PT: {error}");
                Ok(None)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Hardware> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a handle that freezes the traces.
    #[must_use]
    pub fn freezer(&self) -> Freezer {
        self.lock().freezer()
    }

    /// Returns the gauges with name and description.
    #[must_use]
    pub fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let counters = self.lock().counters();
        [
            ("trace_cpus", "Processors that are traced.", counters.cpus_traced),
            ("trace_lost_records", "Lost sideband records.", counters.lost),
            (
                "trace_truncated",
                "Times that a full buffer truncated a trace.",
                counters.truncated,
            ),
            (
                "trace_busy",
                "Times that another program used the PMU.",
                counters.busy,
            ),
            (
                "trace_cpus_came",
                "Processors that went online.",
                counters.cpus_onlined,
            ),
            (
                "trace_cpus_went",
                "Processors that went offline.",
                counters.cpus_offlined,
            ),
            (
                "trace_freezes",
                "Times that the traces were copied.",
                counters.freezes,
            ),
            (
                "trace_paused_by_kernel",
                "Of these, pauses by the kernel itself.",
                counters.paused_by_kernel,
            ),
            (
                "trace_resume_failures",
                "Traces that could not be resumed.",
                counters.resume_failures,
            ),
            (
                "trace_sideband_bytes",
                "Bytes of the sideband history.",
                counters.history_bytes,
            ),
        ]
        .map(|(name, help, value)| (name, help, value as f64))
        .to_vec()
    }

    /// Returns frozen traces as plain data, and its bytes, of one process or of all that ran.
    #[must_use]
    pub fn record(&self, frozen: &Frozen, pid: Option<Pid>) -> (RecordedHistory, Vec<u8>) {
        let mut hardware = self.lock();
        hardware.drain();
        let snapshot = hardware.collect(frozen, pid);
        // The rest takes time and does not need the rings.
        drop(hardware);
        snapshot.record()
    }

    /// Reads the sideband until the other end of `stop` is closed.
    pub fn run(&self, stop: &PipeReader) {
        loop {
            let waited: Vec<RawFd> = self.lock().descriptors().iter().map(AsRawFd::as_raw_fd).collect();
            let mut waited: Vec<PollFd<'_>> = waited
                .into_iter()
                .map(|fd| {
                    // SAFETY: only `drain` closes rings, later in this loop or, through `record`,
                    // during this wait. In the second case poll(2) reports a closed descriptor, and
                    // nothing is read from it.
                    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                    PollFd::new(fd, PollFlags::POLLIN)
                })
                .collect();
            waited.push(PollFd::new(stop.as_fd(), PollFlags::POLLIN));
            let _ = poll(&mut waited, DRAIN_INTERVAL_MS);
            if waited.last().and_then(PollFd::any).unwrap_or(false) {
                return;
            }
            self.lock().drain();
        }
    }
}

/// Returns the options of the Intel PT source for a configuration.
fn options(trace: &TraceConfig) -> Result<HardwareOptions> {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Ok(HardwareOptions {
        kernel: trace.kernel,
        scope: match &trace.cgroup {
            Some(cgroup) => Scope::Cgroup(cgroup.clone()),
            None if trace.pids.is_empty() => Scope::System,
            None => Scope::Processes(trace.pids.iter().copied().map(Pid).collect()),
        },
        filters: trace
            .filters
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_>>()?,
        psb_period: trace.psb_period,
        mtc_period: trace.mtc_period,
        cyc_threshold: trace.cyc_threshold,
        compress_returns: trace.compress_returns,
        ring: size(trace.ring.0),
        history: size(trace.sideband.0),
        ..HardwareOptions::default()
    })
}
