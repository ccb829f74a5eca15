//! One crash into the spool: from the handler's request, or from the probe's sighting alone.

use super::core_file::{Reading, save_seen};
use super::sightings::{Sighting, Sightings};
use super::{head, image};
use crate::clock;
use crate::config::Config;
use crate::error::Result;
use crate::hardware::{Frozen, Written};
use crate::history::History;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::pattern::Specifiers;
use crate::spool::{Draft, Spool};
use crate::wire::{Connection, Reply};
use backtrail_bundle::manifest::{self, Collected, Crash, Manifest, Meta, Source};
use backtrail_bundle::{BundlePath, Writer};
use backtrail_process::{RawTid, machine, status};
use backtrail_pt::{Pid, Tid, TimingParams};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
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
    pub config: RwLock<Arc<Config>>,
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
    pub(super) crash: Option<Crash>,
    pub(super) threads: Vec<Tid>,
    pub(super) core: Option<BundlePath>,
    pub(super) notes: Vec<String>,
}

impl Saver {
    /// The configuration as it is now.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
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
        let signal = job.crash.signal;
        let wanted = signal == 0 || config.crash.signals.contains(signal);
        if !wanted || !self.admits(executable.as_deref().unwrap_or(&job.crash.display_name())) {
            self.sightings.take(pid, Duration::ZERO);
            self.answer(&job.waiting, &[]);
            return Ok(Saved::Limited);
        }
        let sighting = sighting.or_else(|| self.sightings.take(pid, patience));
        let held_at = clock::monotonic();
        let (head, mut pipe) = head::read(job.core, deadline);
        let saved = self.begin(&job.crash.display_name(), pid).and_then(|draft| {
            let mut findings = self.findings("crash", sighting.as_ref());
            findings.collected.user = Some(job.crash.uid);
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
        if let Err(error) = self.spool.hand_over(&draft.path) {
            tracing::warn!("{error}");
        }
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

/// A file of these bytes that is nowhere on a disk.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"core", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}
