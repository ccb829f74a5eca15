//! The traces of all processors as the daemon uses them: configured, frozen at a crash, and written
//! into bundles.

use crate::config::{Config, TraceConfig, TraceSource};
use crate::error::{Error, Result};
use crate::hardware::{Filter, Freezer, Frozen, Hardware, HardwareOptions, RecordedHistory, Scope};
use backtrail_pt::Pid;
use nix::poll::{PollFd, PollFlags, poll};
use std::io::PipeReader;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The traces of all processors.
#[derive(Debug)]
pub struct History(Mutex<Hardware>);

/// The longest time between two reads of the sideband.
const DRAIN_EVERY: u16 = 500; // milliseconds

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
                counters.cpus_came,
            ),
            (
                "trace_cpus_went",
                "Processors that went offline.",
                counters.cpus_went,
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
            let _ = poll(&mut waited, DRAIN_EVERY);
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
            .map(|text| filter(text))
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

/// Parses `START/SIZE@FILE`, or `START/SIZE` for kernel code.
pub(crate) fn filter(text: &str) -> Result<Filter> {
    let wrong = || {
        Error::Unable(format!(
            "{text:?} is not an address filter; write for example \"0x1000/0x200@/usr/bin/server\", an offset and a size"
        ))
    };
    let (range, file) = match text.split_once('@') {
        Some((range, file)) if file.starts_with('/') => (range, Some(file.into())),
        Some(_) => return Err(wrong()),
        None => (text, None),
    };
    let number = |text: &str| match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    };
    let (start, size) = range.split_once('/').ok_or_else(wrong)?;
    Ok(Filter {
        file,
        start: number(start).ok_or_else(wrong)?,
        size: number(size).filter(|size| *size != 0).ok_or_else(wrong)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_or_refused() {
        let found = filter("0x1000/512@/usr/bin/a b").unwrap();
        assert_eq!((found.start, found.size), (0x1000, 512));
        assert_eq!(found.file, Some("/usr/bin/a b".into()));
        assert_eq!(filter("0xffffffff81000000/0x10").unwrap().file, None);
        for text in ["", "1", "1/0", "x/1@/a", "1/2@a"] {
            assert!(filter(text).is_err(), "{text}");
        }
    }
}
