//! The core of a crash: of a process that is kept, by the policy, or of the one thread that the probe saw.

use super::memory::ProcessMemory;
use super::save::Findings;
use super::{image, reachable};
use crate::config::{Config, Core as Policy};
use crate::error::{Error, Result};
use crate::probe::{CrashSeen, Told};
use backtrail_bundle::core::{self, CoreContents, CoreThread, ProcessInfo, Segment};
use backtrail_bundle::manifest::Crash;
use backtrail_bundle::{BundlePath, Writer};
use backtrail_process::{RawTid, maps, status};
use backtrail_pt::{Avma, Pid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Instant;

/// A kept process that is being read.
pub(super) struct Reading<'a> {
    pub(super) pid: Pid,
    /// A thread of it that has not ended.
    pub(super) witness: RawTid,
    pub(super) config: &'a Config,
    /// The rest of its core.
    pub(super) pipe: &'a mut File,
    pub(super) deadline: Instant,
}

impl Reading<'_> {
    /// Writes the core of `contents`, as the head of the kernel's has them, with as much memory as the policy says.
    pub(super) fn save(
        mut self,
        writer: &Writer,
        mut contents: CoreContents,
        head: &[u8],
        findings: &mut Findings,
    ) -> Result<()> {
        image::use_outer_ids(&mut contents, self.pid);
        findings.threads = contents.threads.iter().map(|thread| thread.tid).collect();
        findings.crash = contents.threads.first().map(|thread| crash(self.pid, thread));
        let path = BundlePath::new("core")?;
        let mut file = writer.create_file(&path)?;
        let written = self.write(&mut file, contents, head, findings);
        if let Err(error) = written {
            // A full disk, most likely: the bundle may still fit without.
            findings
                .collected
                .missing
                .push(format!("the core could not be written ({error})"));
            file.set_len(0).map_err(Error::system("cut the core"))?;
            return Ok(());
        }
        findings.core = Some(path);
        Ok(())
    }

    fn write(
        &mut self,
        file: &mut File,
        contents: CoreContents,
        head: &[u8],
        findings: &mut Findings,
    ) -> io::Result<()> {
        let maps = maps::maps(self.witness);
        let memory = match ProcessMemory::open(self.witness, &maps) {
            Ok(memory) => memory,
            // Not even root may read it (Yama, scope 3): the kernel sends it all the same.
            Err(_) => return self.write_as_sent(file, head, findings),
        };
        let missing = &mut findings.collected.missing;
        save_memory(
            file,
            self.witness,
            contents,
            memory,
            self.config,
            self.deadline,
            missing,
        )
    }

    /// Writes the core as the kernel sends it.
    fn write_as_sent(&mut self, file: &mut File, head: &[u8], findings: &mut Findings) -> io::Result<()> {
        let limit = self.config.crash.core_limit.0;
        file.write_all(head)?;
        let copied = io::copy(&mut Read::by_ref(self.pipe).take(limit), file)?;
        if copied == limit {
            let missing = format!("the core is cut at core_limit ({})", self.config.crash.core_limit);
            findings.collected.missing.push(missing);
        }
        Ok(())
    }
}

/// Writes a core with as much memory as the policy says, and no longer than until the deadline.
pub(super) fn save_memory(
    file: &mut File,
    witness: RawTid,
    mut contents: CoreContents,
    mut memory: ProcessMemory,
    config: &Config,
    deadline: Instant,
    missing: &mut Vec<String>,
) -> io::Result<()> {
    let (mut policy, limit) = (config.crash.core, config.crash.core_limit);
    let in_use = status::memory_in_use(witness);
    if policy == Policy::Full && in_use.is_some_and(|bytes| bytes > limit.0) {
        missing.push(format!(
            "the process had more memory than core_limit ({limit}): only stacks and what they point to are saved"
        ));
        policy = Policy::Stacks;
    }
    match policy {
        Policy::Full => {}
        Policy::Stacks => contents.segments = reachable::segments(&contents, &mut memory),
        Policy::None => contents.segments.iter_mut().for_each(|segment| segment.saved = 0),
    }
    let mut timely = Timely { memory, deadline };
    let promised: u64 = contents.segments.iter().map(|segment| segment.saved).sum();
    let saved = core::write(file, &contents, &mut timely)?;
    if saved < promised && timely.is_late() {
        missing.push(format!(
            "reading the memory took longer than hold_limit ({}): the rest is not saved",
            config.crash.hold_limit
        ));
    }
    Ok(())
}

/// Memory that is there until the deadline.
struct Timely {
    memory: ProcessMemory,
    deadline: Instant,
}

impl Timely {
    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

impl core::Memory for &mut Timely {
    fn read(&mut self, address: Avma, out: &mut [u8]) -> usize {
        if self.is_late() {
            0
        } else {
            self.memory.read(address, out)
        }
    }

    fn zeros(&mut self, address: Avma, size: u64) -> u64 {
        self.memory.zeros(address, size)
    }
}

/// A core of the one thread that the probe saw, with the stack that it copied.
pub(super) fn save_seen(writer: &Writer, seen: &CrashSeen, findings: &mut Findings) -> Result<()> {
    let thread = CoreThread {
        tid: seen.tid,
        signal: seen.siginfo.signal(),
        registers: seen.registers,
        // What is not told is zero in it, and would read as an address and a sender that it never had.
        siginfo: (seen.siginfo_told >= Told::Address).then_some(seen.siginfo),
        ..CoreThread::default()
    };
    findings.crash = Some(Crash {
        code: seen.siginfo.code(),
        fault_address: seen.fault_address(),
        ..crash(seen.pid, &thread)
    });
    findings.threads = vec![seen.tid];
    let size = seen.stack.len() as u64;
    let contents = CoreContents {
        process: ProcessInfo {
            pid: seen.pid.0,
            name: seen.comm.clone(),
            ..ProcessInfo::default()
        },
        threads: vec![thread],
        segments: (size != 0)
            .then_some(Segment {
                start: seen.stack_at,
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
    let path = BundlePath::new("core")?;
    let mut file = writer.create_file(&path)?;
    let stack = |address: Avma, out: &mut [u8]| {
        let start = usize::try_from(address - seen.stack_at).unwrap_or(usize::MAX);
        let from = seen.stack.get(start..).unwrap_or_default();
        let len = from.len().min(out.len());
        if let (Some(out), Some(from)) = (out.get_mut(..len), from.get(..len)) {
            out.copy_from_slice(from);
        }
        len
    };
    core::write(&mut file, &contents, stack).map_err(Error::system("write the core"))?;
    findings.core = Some(path);
    Ok(())
}

fn crash(pid: Pid, thread: &CoreThread) -> Crash {
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
    use backtrail_bundle::Overwrite;
    use backtrail_bundle::core::{Core, Registers, SigInfo};
    use backtrail_pt::{Cpu, Tid};

    fn seen(told: Told) -> CrashSeen {
        CrashSeen {
            at: 1,
            at_boot: None,
            cpu: Cpu(0),
            pid: Pid(7),
            tid: Tid(8),
            inner_pid: None,
            inner_tid: None,
            pid_namespace: None,
            mount_namespace: None,
            user: None,
            effective_user: None,
            cgroup: None,
            started: None,
            comm: "worker".to_owned(),
            siginfo: SigInfo::new(11, 1, Avma(0xdead)),
            siginfo_told: told,
            registers: Registers::default(),
            bases_told: false,
            frames: Vec::new(),
            stack_at: Avma(0x7000),
            stack: vec![5; 16],
        }
    }

    #[test]
    fn an_address_that_the_probe_cannot_tell_is_not_claimed() {
        let directory = tempfile::tempdir().unwrap();
        for (told, address) in [(Told::Code, None), (Told::Address, Some(Avma(0xdead)))] {
            let target = directory.path().join("crash");
            let writer = Writer::create(&target, Overwrite::Never).unwrap();
            let mut findings = Findings::default();
            save_seen(&writer, &seen(told), &mut findings).unwrap();
            let crash = findings.crash.unwrap();
            assert_eq!(
                (crash.signal, crash.code, crash.fault_address),
                (11, 1, address),
                "{told:?}"
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
