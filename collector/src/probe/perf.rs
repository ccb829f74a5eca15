//! The kind without eBPF: a perf event on the tracepoint `signal_deliver` for each processor.

use super::event::{EventSource, Layout, RawEvent};
use super::perf_sample::Fields;
use super::ring::SampleRing;
use super::{MAX_STACK, ProbeOptions, SignalSet, tracefs};
use backtrail_pt::{Cpu, Pid};
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// General registers and `ip`, `flags`, `cs`, `ss`. The kernel refuses `ds`, `es`, `fs`, `gs` on
/// x86-64.
const REGISTER_MASK: u64 = 0x00ff_0fff;
/// The perf events and their rings.
pub(super) struct PerfSource {
    rings: Vec<(SampleRing, OwnedFd)>,
    only: Option<Pid>,
    excluded: Vec<Pid>,
    recent: RecentProcesses,
}

/// Processes that were recently reported. Several threads may crash before the first one has killed
/// the others.
struct RecentProcesses(VecDeque<(Pid, u64)>);

impl RecentProcesses {
    /// A dying process delivers its last signals within this time in nanoseconds. Its id is not
    /// reused that soon.
    const WINDOW: u64 = 1_000_000_000;
    const CAPACITY: usize = 1024;

    /// Allocates all memory in advance.
    fn new() -> Self {
        Self(VecDeque::with_capacity(Self::CAPACITY))
    }

    /// Returns whether the process was not reported before.
    fn is_new(&mut self, pid: Pid, at: u64) -> bool {
        let known = self
            .0
            .iter()
            .any(|(known, then)| *known == pid && at.abs_diff(*then) < Self::WINDOW);
        if !known {
            self.0.truncate(Self::CAPACITY - 1);
            self.0.push_front((pid, at));
        }
        !known
    }
}

impl PerfSource {
    pub(super) fn attach(options: &ProbeOptions) -> Result<Self, String> {
        let id = tracefs::id("signal", "signal_deliver")?;
        let filter = CString::new(filter(options.signals)).map_err(|error| error.to_string())?;
        let cpus = tracefs::online();
        if cpus.is_empty() {
            return Err("the processors cannot be determined (/sys/devices/system/cpu/online)".to_owned());
        }
        let stack = options.stack.min(MAX_STACK).next_multiple_of(8) as u32;
        // Each ring has room for some samples with a full stack.
        let size = (options.ring as usize / cpus.len()).max(8 * MAX_STACK);
        let failed = |what: &str| format!("the kernel does not {what}: {}", io::Error::last_os_error());
        let mut rings = Vec::new();
        for cpu in cpus {
            let event = tracefs::open(&mut attributes(id, stack), cpu)
                .map_err(|error| format!("the kernel does not open the event: {error}"))?;
            // SAFETY: the filter is a C string that outlives the call, which only reads it.
            if unsafe { perf::ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) } < 0 {
                return Err(failed("take the event's filter"));
            }
            let ring = SampleRing::map(event.as_fd(), size)
                .map_err(|error| format!("the kernel does not map the event's ring: {error}"))?;
            rings.push((ring, event));
        }
        for (_, event) in &rings {
            // SAFETY: the descriptor is open.
            if unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) } < 0 {
                return Err(failed("enable the event"));
            }
        }
        Ok(Self {
            rings,
            only: options.only,
            excluded: options.excluded.clone(),
            recent: RecentProcesses::new(),
        })
    }
}

impl PerfSource {
    /// Returns whether the sample in `event` is the first one of a process to report. Reads the
    /// sample's head.
    fn wants(&mut self, event: &mut RawEvent) -> bool {
        let Some((pid, at, cpu)) = head(&event.bytes) else {
            return false;
        };
        (event.pid, event.at, event.cpu) = (pid, at, cpu);
        event.user = None;
        event.layout = Layout::Sample;
        self.only.is_none_or(|only| only == pid)
            && !self.excluded.contains(&pid)
            && self.recent.is_new(pid, at)
    }
}

fn attributes(id: u64, stack: u32) -> sys::perf_event_attr {
    let mut sample_type = sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_CPU
        | sys::PERF_SAMPLE_CALLCHAIN
        | sys::PERF_SAMPLE_RAW
        | sys::PERF_SAMPLE_REGS_USER;
    if stack > 0 {
        sample_type |= sys::PERF_SAMPLE_STACK_USER;
    }
    let mut attributes = sys::perf_event_attr {
        type_: sys::PERF_TYPE_TRACEPOINT,
        config: id,
        sample_type: sample_type.into(),
        read_format: sys::PERF_FORMAT_LOST.into(),
        sample_regs_user: REGISTER_MASK,
        sample_stack_user: stack,
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.__bindgen_anon_2.wakeup_events = 1;
    attributes.set_disabled(1);
    attributes.set_use_clockid(1);
    attributes.set_exclude_callchain_kernel(1);
    attributes
}

/// Returns the kernel filter: these signals with their default action.
fn filter(signals: SignalSet) -> String {
    let signals: Vec<String> = signals.iter().map(|signal| format!("sig == {signal}")).collect();
    format!("sa_handler == 0 && ({})", signals.join(" || "))
}

impl EventSource for PerfSource {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.iter().map(|(_, event)| event.as_fd()).collect()
    }

    fn next(&mut self, event: &mut RawEvent) -> bool {
        for index in 0..self.rings.len() {
            while let Some(kind) = self.rings[index].0.next(&mut event.bytes) {
                if kind == sys::PERF_RECORD_SAMPLE && self.wants(event) {
                    return true;
                }
            }
        }
        false
    }

    fn lost(&self) -> u64 {
        self.rings.iter().map(|(_, event)| lost_of(event.as_fd())).sum()
    }
}

/// Returns how many samples an event lost (`PERF_FORMAT_LOST`: the count, then the losses).
/// `PERF_RECORD_LOST` records would report them only with the next sample that fits.
fn lost_of(event: BorrowedFd<'_>) -> u64 {
    let mut words = [0_u64; 2];
    let size = size_of_val(&words);
    // SAFETY: the buffer has the size given and lives through the call.
    let read = unsafe { libc::read(event.as_raw_fd(), words.as_mut_ptr().cast(), size) };
    if usize::try_from(read) == Ok(size) {
        words[1]
    } else {
        0
    }
}

/// Returns the process, time and processor of a sample.
fn head(record: &[u8]) -> Option<(Pid, u64, Cpu)> {
    let mut fields = Fields(record);
    let (pid, _) = (Pid(fields.u32()?), fields.u32()?);
    Some((pid, fields.u64()?, Cpu(fields.u32()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_reported_once_until_its_id_is_reused() {
        let mut recent = RecentProcesses::new();
        assert!(recent.is_new(Pid(5), 100));
        assert!(!recent.is_new(Pid(5), 90), "another processor's ring");
        assert!(recent.is_new(Pid(6), 100));
        assert!(recent.is_new(Pid(5), 100 + RecentProcesses::WINDOW));
        for pid in 0..2 * RecentProcesses::CAPACITY as u32 {
            recent.is_new(Pid(pid), 0);
        }
        assert_eq!(recent.0.len(), RecentProcesses::CAPACITY);
    }

    #[test]
    fn filter_names_every_signal() {
        let set = SignalSet::new(&[6, 11]).unwrap();
        assert_eq!(filter(set), "sa_handler == 0 && (sig == 6 || sig == 11)");
    }
}
