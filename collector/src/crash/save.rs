//! One crash into the spool: from the handler's request, or from the probe's sighting alone.

use super::memory::ProcessMemory;
use super::sightings::{Sighting, Sightings};
use super::{head, image, reachable};
use crate::clock;
use crate::config::{Config, Core as Policy};
use crate::error::{Error, Result};
use crate::hardware::{Frozen, Written};
use crate::history::History;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::pattern::Specifiers;
use crate::probe::{CrashSeen, Told};
use crate::spool::{Draft, Spool};
use crate::wire::{Connection, Reply};
use backtrail_bundle::core::{self, CoreContents, CoreThread, ProcessInfo, Segment};
use backtrail_bundle::manifest::{self, Collected, Crash, Manifest, Meta, Source};
use backtrail_bundle::{BundlePath, Writer};
use backtrail_process::{RawTid, machine, maps, status};
use backtrail_pt::{Avma, Pid, Tid, TimingParams};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A process that is kept until whoever waits is answered.
#[derive(Debug)]
pub struct Job {
    /// What the kernel told; a thread or signal of 0 is not known.
    pub crash: Specifiers,
    /// Where its core is read.
    pub core: OwnedFd,
    /// Who keeps the process until it is answered.
    pub waiting: Waiting,
    /// When the request came (`CLOCK_MONOTONIC`).
    pub received: u64,
}

/// Who keeps a process that crashes.
#[derive(Debug)]
pub enum Waiting {
    /// The handler, at the other end of this.
    Handler(Connection),
    /// The kernel, until the core's connection is closed.
    Kernel,
}

/// What a crash came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// A bundle of this name.
    Bundle(String),
    /// None: its executable had caused too many.
    Limited,
}

/// Writes bundles of crashes.
#[derive(Debug)]
pub struct Saver {
    /// Where they go.
    pub spool: Spool,
    /// What the probe has seen.
    pub sightings: Sightings,
    /// What is counted.
    pub metrics: Metrics,
    /// The configuration; it may be another one at each crash.
    pub config: RwLock<Config>,
    /// Who may cause how many.
    pub limiter: Mutex<Limiter>,
    /// What tells of crashes, in words; `None`: nothing but the core's handler.
    pub probe: Option<String>,
    /// What is recorded of all processors.
    pub history: Option<History>,
    /// Whether cores go on to where they went before.
    pub chain: bool,
}

/// How long the probe's event may take that came before the handler was started.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is known of a crash so far, on its way into a manifest.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) collected: Collected,
    crash: Option<Crash>,
    pub(super) threads: Vec<Tid>,
    pub(super) core: Option<BundlePath>,
    pub(super) notes: Vec<String>,
}

impl Saver {
    pub(super) fn config(&self) -> Config {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether an executable, or a function, may cause one more bundle now.
    pub(crate) fn admits(&self, executable: &str) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let admits = limiter.admits(executable, Instant::now());
        if !admits {
            self.metrics.crashes_limited.count();
        }
        admits
    }

    /// Saves a process that is kept, and lets it go as soon as nothing more is to be read.
    ///
    /// # Errors
    /// When the bundle cannot be written. The process is let go in any case.
    pub fn save_held(&self, job: Job) -> Result<Saved> {
        self.metrics.processes_held.count();
        let config = self.config();
        let deadline = Instant::now() + config.crash.hold_limit.0;
        let pid = Pid(job.crash.pid);
        let patience = if self.probe.is_some() {
            PATIENCE
        } else {
            Duration::ZERO
        };
        // Known to the one who waits, or to the probe.
        let (sighting, tid) = match job.crash.tid {
            0 => {
                let sighting = self.sightings.take(pid, patience);
                let tid = sighting.as_ref().map_or(pid.0, |it| it.seen.tid.0);
                (sighting, tid)
            }
            tid => (None, tid),
        };
        // The first thread may have ended before the others, and has no memory then; the one that crashed has.
        let witness = tid as RawTid;
        let executable = status::program(witness);
        let signal = job.crash.signal.clamp(0, 63);
        let wanted = signal == 0 || config.crash.signals.mask() >> signal & 1 == 1;
        if !wanted || !self.admits(executable.as_deref().unwrap_or(&job.crash.name)) {
            self.sightings.take(pid, Duration::ZERO);
            self.answer(&job.waiting, &[]);
            return Ok(Saved::Limited);
        }
        let sighting = sighting.or_else(|| self.sightings.take(pid, patience));
        let held_at = clock::monotonic();
        let (head, mut pipe) = head::read(job.core, deadline);
        let saved = self.begin(&job.crash.name, pid).and_then(|draft| {
            let mut findings = self.findings("crash", sighting.as_ref());
            if sighting.is_none() && self.probe.is_some() {
                let missing = "the probe did not tell of the crash: how long it took is not known";
                findings.collected.missing.push(missing.to_owned());
            }
            findings.collected.crash_to_held = sighting.as_ref().map(|it| held_at.saturating_sub(it.seen.at));
            let reading = Reading {
                pid,
                witness,
                config: &config,
                pipe: &mut pipe,
                deadline,
            };
            match (&head.contents, &sighting) {
                (Ok(contents), _) => {
                    reading.save(&draft.writer, contents.clone(), &head.bytes, &mut findings)?
                }
                (Err(why), Some(sighting)) => {
                    findings.collected.missing.push(why.clone());
                    save_seen(&draft.writer, &sighting.seen, &mut findings)?;
                }
                (Err(why), None) => findings.collected.missing.push(why.clone()),
            }
            let missing = &mut findings.collected.missing;
            let process = image::process(pid, witness, &findings.threads, &draft.writer, missing)?;
            let command_line = status::command_line(witness);
            // Nothing more is to be read of it.
            self.answer(&job.waiting, &head.bytes);
            drop(pipe);
            findings.collected.held = Some(clock::monotonic().saturating_sub(job.received));
            let written = self.write_history(
                &draft.writer,
                Some(pid),
                sighting.as_ref().and_then(|it| it.frozen.as_ref()),
                &mut findings,
            )?;
            self.finish(draft, findings, Some(process), written, executable, command_line)
        });
        if saved.is_err() {
            self.answer(&job.waiting, &head.bytes);
        }
        self.counted(saved)
    }

    /// Saves what the probe has seen of a process that was not kept.
    ///
    /// # Errors
    /// When the bundle cannot be written.
    pub fn save_unheld(&self, sighting: &Sighting) -> Result<Saved> {
        let seen = &sighting.seen;
        let executable = status::program(seen.tid.0 as RawTid);
        if !self.admits(executable.as_deref().unwrap_or(&seen.comm)) {
            return Ok(Saved::Limited);
        }
        self.metrics.crashes_unheld.count();
        let saved = self.begin(&seen.comm, seen.pid).and_then(|draft| {
            let mut findings = self.findings("crash", Some(sighting));
            findings.collected.missing.push(
                "the process was not kept (no core is dumped of it, or too many crashed at once): there is only what the probe saw"
                    .to_owned(),
            );
            save_seen(&draft.writer, seen, &mut findings)?;
            let process = manifest::Process {
                pid: seen.pid,
                threads: vec![manifest::Thread {
                    tid: seen.tid,
                    name: Some(seen.comm.clone()).filter(|name| !name.is_empty()),
                    trace: None,
                }],
                ..manifest::Process::default()
            };
            let written = self.write_history(
                &draft.writer,
                Some(seen.pid),
                sighting.frozen.as_ref(),
                &mut findings,
            )?;
            self.finish(draft, findings, Some(process), written, executable, Vec::new())
        });
        self.counted(saved)
    }

    pub(super) fn counted(&self, saved: Result<Saved>) -> Result<Saved> {
        match &saved {
            Ok(_) => self.metrics.bundles_written.count(),
            Err(_) => self.metrics.bundles_failed.count(),
        }
        saved
    }

    pub(super) fn begin(&self, name: &str, pid: Pid) -> Result<Draft> {
        self.metrics.bundles_dropped.add(self.spool.make_room()?);
        self.spool.begin(name, pid.0)
    }

    pub(super) fn findings(&self, trigger: &str, sighting: Option<&Sighting>) -> Findings {
        Findings {
            collected: Collected {
                trigger: trigger.to_owned(),
                time: Some(sighting.map_or_else(clock::wall, |it| clock::wall_at(it.seen.at))),
                probe: self.probe.clone().filter(|_| sighting.is_some()),
                crash_to_reader: sighting.map(|it| it.read_at.saturating_sub(it.seen.at)),
                ..Collected::default()
            },
            ..Findings::default()
        }
    }

    /// Lets the process go, if a handler keeps it; that one gets what was taken of the core, if it is to pass it on.
    fn answer(&self, waiting: &Waiting, taken: &[u8]) {
        let Waiting::Handler(connection) = waiting else {
            return;
        };
        let copy = self.chain.then(|| in_memory(taken).ok()).flatten();
        let reply = Reply {
            taken: copy.as_ref().map_or(0, |_| taken.len() as u64),
            ..Reply::default()
        };
        // A handler that is gone needs no answer.
        let _ = connection.send(&reply, copy.as_ref().map(AsFd::as_fd));
    }

    /// The processors' traces as they were at the crash.
    pub(super) fn write_history(
        &self,
        writer: &Writer,
        pid: Option<Pid>,
        frozen: Option<&Frozen>,
        findings: &mut Findings,
    ) -> Result<Option<Written>> {
        let Some(history) = &self.history else {
            return Ok(None);
        };
        let collected = &mut findings.collected;
        let Some(frozen) = frozen else {
            let missing = "the processors' traces are not there: they were being copied for another crash";
            collected.missing.push(missing.to_owned());
            return Ok(None);
        };
        let written = history.write(frozen, pid, writer)?;
        collected.history = written.costs.iter().map(|cost| cost.bytes as u64).sum();
        let crashed = written.costs.first();
        collected.crash_to_stop = crashed.and_then(|cost| cost.crash_to_pause);
        collected.overwritten = crashed
            .and_then(|cost| cost.written_since_crash)
            .map(|bytes| bytes as u64);
        findings.notes.extend(written.notes.iter().cloned());
        Ok(Some(written))
    }

    pub(super) fn finish(
        &self,
        draft: Draft,
        mut findings: Findings,
        process: Option<manifest::Process>,
        written: Option<Written>,
        executable: Option<String>,
        command_line: Vec<String>,
    ) -> Result<Saved> {
        if findings.collected.history == 0 {
            let note = "this machine records no history: there is the state at the crash alone";
            findings.notes.push(note.to_owned());
        }
        if !findings.collected.missing.is_empty() {
            self.metrics.bundles_incomplete.count();
        }
        let (mut cpus, mut filters) = (Vec::new(), Vec::new());
        let (mut cpu, mut timing, mut tsc) = (machine::cpu_model(), TimingParams::default(), None);
        let mut processes = Vec::new();
        if let Some(written) = written {
            (cpus, filters, processes) = (written.cpus, written.filters, written.processes);
            (cpu, timing, tsc) = (
                written.machine.cpu,
                written.machine.timing,
                Some(written.machine.tsc),
            );
        }
        if let Some(mut process) = process {
            if let Some(index) = processes.iter().position(|other| other.pid == process.pid) {
                join(&mut process, processes.remove(index));
            }
            processes.insert(0, process);
        }
        let created_at = findings.collected.time.map(|time| time / 1_000_000_000);
        let manifest = Manifest {
            cpu,
            timing,
            tsc,
            filters,
            processes,
            cpus,
            core: findings.core,
            meta: Meta {
                source: if self.history.is_some() {
                    Source::Hardware
                } else {
                    Source::Unknown
                },
                created_by: Some("collect".to_owned()),
                created_at,
                program: executable,
                command_line,
                crash: findings.crash,
                host: machine::says("hostname"),
                kernel: machine::says("osrelease"),
                collected: Some(findings.collected),
                notes: findings.notes,
                ..Meta::default()
            },
        };
        draft.writer.finish_durably(&manifest)?;
        self.metrics.bundles_dropped.add(self.spool.make_room()?);
        Ok(Saved::Bundle(draft.id))
    }
}

/// What the records of mappings know beyond what the process is at its end: threads that ended, files it let go.
fn join(process: &mut manifest::Process, recorded: manifest::Process) {
    for thread in recorded.threads {
        if process.threads.iter().all(|known| known.tid != thread.tid) {
            process.threads.push(thread);
        }
    }
    for module in recorded.modules {
        let known = process
            .modules
            .iter()
            .any(|known| known.base == module.base && known.build_id == module.build_id);
        if !known {
            // Where two overlap, the later one counts: what is mapped at the end.
            process.modules.insert(0, module);
        }
    }
}

/// A kept process that is being read.
struct Reading<'a> {
    pid: Pid,
    /// A thread of it that has not ended.
    witness: RawTid,
    config: &'a Config,
    /// The rest of its core.
    pipe: &'a mut File,
    deadline: Instant,
}

impl Reading<'_> {
    /// Writes the core of `contents`, as the head of the kernel's has them, with as much memory as the policy says.
    fn save(
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
fn save_seen(writer: &Writer, seen: &CrashSeen, findings: &mut Findings) -> Result<()> {
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

/// A file of these bytes that is nowhere on a disk.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"core", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::Overwrite;
    use backtrail_bundle::core::{Core, Registers, SigInfo};
    use backtrail_pt::Cpu;

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
