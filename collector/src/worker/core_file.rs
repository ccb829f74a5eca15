//! Writes the core of a crash: of a held process, by the policy, or of the one thread that the
//! probe reported.

use super::memory::ProcessMemory;
use super::open::{OpenProcess, OpenThread};
use super::reachable;
use super::task::{Policy, SampleRecord};
use crate::clock;
use crate::config::CorePolicy;
use crate::error::{Error, Result};
use backtrail_bundle::core::{self, CoreContents, CoreThread, Memory, ProcessInfo, Segment};
use backtrail_bundle::manifest::Crash;
use backtrail_bundle::module_file::Allowance;
use backtrail_bundle::{BundlePath, Writer};
use backtrail_pt::{Avma, Pid, Tid};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};

/// The name of the core in a bundle.
pub(super) const CORE: &str = "core";

/// Replaces the ids of the process and its threads by those outside of their pid namespace. A core
/// has the inner ids.
pub(super) fn use_outer_ids(contents: &mut CoreContents, process: &OpenProcess) {
    let outer = |thread: &OpenThread| Some((thread.inner?, thread.tid));
    let outer: HashMap<u32, Tid> = process.threads.iter().filter_map(outer).collect();
    contents.process.pid = process.pid.0;
    for thread in &mut contents.threads {
        if let Some(outer) = outer.get(&thread.tid.0) {
            thread.tid = *outer;
        }
    }
}

/// The limits of a core.
pub(super) struct CoreLimits<'a> {
    pub(super) policy: &'a Policy,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) deadline: u64,
    pub(super) allowance: &'a mut Allowance,
}

/// Writes a core with as much memory as the policy allows, until the deadline, and within the
/// allowance.
///
/// # Errors
/// When it cannot be written.
pub(super) fn save_memory(
    file: &mut File,
    process: &OpenProcess,
    mut contents: CoreContents,
    mut memory: ProcessMemory<'_>,
    limits: CoreLimits<'_>,
    missing: &mut Vec<String>,
) -> io::Result<()> {
    let policy = limits.policy;
    let limit = &policy.limit_text;
    let selected = match policy.core {
        CorePolicy::Full if wanted(process, &contents) > policy.limit => {
            missing.push(format!(
                "the process has more memory than core_limit ({limit}): only stacks and the pages that they point to are saved"
            ));
            CorePolicy::Stacks
        }
        selected => selected,
    };
    match selected {
        CorePolicy::Full => {}
        CorePolicy::Stacks => contents.segments = reachable::segments(&contents, &mut memory),
        CorePolicy::None => contents.segments.iter_mut().for_each(|segment| segment.saved = 0),
    }
    let left_out = memory.leave_out_remote(&mut contents.segments);
    if left_out != 0 {
        missing.push(format!(
            "{} KiB of files are not saved, because they were not in memory and their file system may not answer",
            left_out.div_ceil(1024)
        ));
    }
    let mut bounded = LimitedMemory {
        memory,
        deadline: limits.deadline,
        left: limits.allowance.bytes,
        is_late: false,
    };
    let promised: u64 = contents.segments.iter().map(|segment| segment.saved).sum();
    let saved = core::write(file, &contents, &mut bounded)?;
    limits.allowance.bytes = bounded.left;
    if saved < promised && bounded.is_late {
        missing.push(format!(
            "reading the memory took longer than hold_limit ({}): the rest is not saved",
            policy.hold_limit_text
        ));
    } else if saved < promised && bounded.left == 0 {
        missing.push("the bundle has reached its size limit: the rest of the memory is not saved".to_owned());
    }
    Ok(())
}

/// Returns the size of a full core: private memory in use, and file mappings in full.
fn wanted(process: &OpenProcess, contents: &CoreContents) -> u64 {
    let mut files: HashMap<u64, bool> = HashMap::new();
    files.extend(
        process
            .maps
            .iter()
            .filter(|map| map.is_file())
            .map(|map| (map.start, map.shared || !map.writable)),
    );
    let of_files = contents
        .segments
        .iter()
        .filter(|segment| files.get(&segment.start.0) == Some(&true));
    let of_files = of_files.fold(0u64, |sum, segment| sum.saturating_add(segment.saved));
    process.in_use.unwrap_or(0).saturating_add(of_files)
}

/// Memory that is readable until the deadline, and within the allowance.
struct LimitedMemory<'a> {
    memory: ProcessMemory<'a>,
    deadline: u64,
    /// Bytes that may still be read.
    left: u64,
    is_late: bool,
}

impl Memory for &mut LimitedMemory<'_> {
    fn read(&mut self, address: Avma, out: &mut [u8]) -> usize {
        self.is_late |= clock::monotonic() >= self.deadline;
        if self.is_late {
            return 0;
        }
        let wanted = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = out
            .get_mut(..wanted)
            .map_or(0, |out| self.memory.read(address, out));
        self.left -= got as u64;
        got
    }

    fn zeros(&mut self, address: Avma, size: u64) -> u64 {
        self.is_late |= clock::monotonic() >= self.deadline;
        if self.is_late {
            0
        } else {
            self.memory.zeros(address, size)
        }
    }
}

/// Writes the core that the kernel sends: its head, and the rest, which should have at least
/// `promised` bytes.
///
/// # Errors
/// When it cannot be written.
pub(super) fn save_as_sent(
    file: &mut File,
    head: &[u8],
    rest: &mut impl Read,
    promised: u64,
    limits: CoreLimits<'_>,
    missing: &mut Vec<String>,
) -> io::Result<()> {
    let limit = limits.policy.limit.min(limits.allowance.bytes);
    file.write_all(head)?;
    let copied = io::copy(&mut rest.take(limit), file)?;
    limits.allowance.bytes -= copied;
    if copied < promised.min(limit) {
        missing.push(format!(
            "the kernel sent {copied} of {promised} bytes of the process's memory"
        ));
    }
    if copied == limit {
        missing.push(format!(
            "the core is truncated at core_limit ({})",
            limits.policy.limit_text
        ));
    }
    Ok(())
}

/// Writes a core without memory.
///
/// # Errors
/// When it cannot be written.
pub(super) fn save_without_memory(file: &mut File, mut contents: CoreContents) -> io::Result<()> {
    contents.segments.iter_mut().for_each(|segment| segment.saved = 0);
    core::write(file, &contents, |_: Avma, _: &mut [u8]| 0).map(drop)
}

/// Writes a core of the one thread that the probe reported, with its copied stack. Returns the
/// crash.
///
/// # Errors
/// When it cannot be written.
pub(super) fn save_sample(writer: &Writer, sample: &SampleRecord) -> Result<Crash> {
    let thread = sample.thread();
    let crashed = Crash {
        code: sample.siginfo().code(),
        fault_address: sample.fault_address(),
        ..crash(sample.pid(), &thread)
    };
    let (stack_at, stack) = sample.stack();
    let size = stack.len() as u64;
    let contents = CoreContents {
        process: ProcessInfo {
            pid: sample.pid().0,
            name: sample.name().to_owned(),
            ..ProcessInfo::default()
        },
        threads: vec![thread],
        segments: (size != 0)
            .then_some(Segment {
                start: stack_at,
                size,
                saved: size,
                readable: true,
                writable: true,
                executable: false,
            })
            .into_iter()
            .collect(),
        ..CoreContents::default()
    };
    let mut file = writer.create_file(&BundlePath::new(CORE)?)?;
    let stack = |address: Avma, out: &mut [u8]| {
        let start = usize::try_from(address - stack_at).unwrap_or(usize::MAX);
        let from = stack.get(start..).unwrap_or_default();
        let len = from.len().min(out.len());
        if let (Some(out), Some(from)) = (out.get_mut(..len), from.get(..len)) {
            out.copy_from_slice(from);
        }
        len
    };
    core::write(&mut file, &contents, stack).map_err(Error::system("write the core"))?;
    Ok(crashed)
}

/// Returns the crash from the core of its thread.
pub(super) fn crash(pid: Pid, thread: &CoreThread) -> Crash {
    Crash {
        pid,
        tid: thread.tid,
        signal: thread.siginfo.map_or(thread.signal, |info| info.signal()),
        code: thread.siginfo.map_or(0, |info| info.code()),
        fault_address: thread.siginfo.and_then(|info| info.address()),
        pc: thread.registers.pc(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{CrashSample, SiginfoDetail};
    use backtrail_bundle::Overwrite;
    use backtrail_bundle::core::{Core, Registers, SigInfo};
    use backtrail_pt::Cpu;

    fn sample(detail: SiginfoDetail) -> SampleRecord {
        SampleRecord::new(&CrashSample {
            at: 1,
            at_boot: None,
            cpu: Cpu(0),
            pid: Pid(7),
            tid: Tid(8),
            inner_pid: None,
            inner_tid: None,
            pid_namespace: None,
            mount_namespace: None,
            cgroup: None,
            user: None,
            effective_user: None,
            started: None,
            comm: "worker".to_owned(),
            siginfo: SigInfo::new(11, 1, Avma(0xdead)),
            siginfo_detail: detail,
            registers: Registers::default(),
            bases_known: false,
            frames: Vec::new(),
            stack_at: Avma(0x7000),
            stack: vec![5; 16],
        })
    }

    #[test]
    fn unknown_fault_address_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        for (detail, address) in [
            (SiginfoDetail::Code, None),
            (SiginfoDetail::Address, Some(Avma(0xdead))),
        ] {
            let target = directory.path().join("crash");
            let writer = Writer::create(&target, Overwrite::Never).unwrap();
            let crash = save_sample(&writer, &sample(detail)).unwrap();
            assert_eq!(
                (crash.signal, crash.code, crash.fault_address),
                (11, 1, address),
                "{detail:?}"
            );
            let mut written = None;
            for entry in std::fs::read_dir(directory.path()).unwrap() {
                let core = entry.unwrap().path().join("core");
                written = std::fs::read(core).ok().or(written);
            }
            let core = Core::parse(written.unwrap().into(), "core").unwrap();
            let thread = core.crashed_thread().unwrap();
            assert_eq!(thread.signal, 11);
            assert_eq!(thread.siginfo.and_then(|info| info.address()), address);
            assert_eq!(thread.siginfo.is_some(), address.is_some());
        }
    }
}
