//! A bundle of a process that has not crashed: somebody asked for it, or a function did.

use super::core_file::save_memory;
use super::live::Stopped;
use super::memory::ProcessMemory;
use super::save::Saver;
use super::{Saved, image};
use crate::clock;
use crate::error::{Error, Result};
use crate::hardware::Frozen;
use backtrail_bundle::BundlePath;
use backtrail_process::{RawTid, maps, status};
use backtrail_pt::Pid;
use std::time::Instant;

/// What is asked for.
#[derive(Debug)]
pub struct Snapshot {
    /// The process whose state is saved; `None`: the traces of all alone.
    pub pid: Option<Pid>,
    /// Why: `snapshot`, or `function`.
    pub trigger: &'static str,
    /// What the reader should know of it.
    pub note: Option<String>,
    /// When (`CLOCK_MONOTONIC`).
    pub at: u64,
    /// The processors' traces at that moment.
    pub frozen: Option<Frozen>,
}

impl Saver {
    /// Saves a process and lets it go on, or the traces of all.
    ///
    /// # Errors
    /// When there is no such process, nothing is recorded that could be saved, or the bundle cannot be written.
    pub fn save_snapshot(&self, wanted: &Snapshot) -> Result<Saved> {
        if wanted.pid.is_none() && wanted.frozen.is_none() {
            let why = "nothing is recorded of all processes here; name one: `backtrail snapshot --pid PID`";
            return Err(Error::Unable(why.to_owned()));
        }
        let saved = self.snapshot(wanted);
        if saved.is_ok() {
            self.metrics.snapshots.count();
        }
        self.counted(saved)
    }

    fn snapshot(&self, wanted: &Snapshot) -> Result<Saved> {
        let raw = wanted.pid.map_or(0, |pid| pid.0 as RawTid);
        let name = wanted.pid.and_then(|_| status::thread_name(raw, raw));
        let executable = wanted.pid.and_then(|_| status::program(raw));
        let command_line = wanted.pid.map_or_else(Vec::new, |_| status::command_line(raw));
        let stopped = match wanted.pid {
            Some(_) => Some(Stopped::stop(raw).map_err(Error::Unable)?),
            None => None,
        };
        let began = clock::monotonic();
        let draft = self.begin(name.as_deref().unwrap_or("all"), Pid(raw as u32))?;
        let mut findings = self.findings(wanted.trigger, None);
        findings.collected.time = Some(clock::wall_at(wanted.at));
        findings.notes.extend(wanted.note.clone());
        let mut process = None;
        if let (Some(stopped), Some(pid)) = (stopped, wanted.pid) {
            if stopped.running != 0 {
                let missing = format!("{} threads did not stop in time", stopped.running);
                findings.collected.missing.push(missing);
            }
            let contents = stopped.contents();
            findings.threads = contents.threads.iter().map(|thread| thread.tid).collect();
            match ProcessMemory::open(raw, &maps::maps(raw)) {
                Ok(memory) => {
                    let config = self.config();
                    let deadline = Instant::now() + config.crash.hold_limit.0;
                    let path = BundlePath::new("core")?;
                    let mut file = draft.writer.create_file(&path)?;
                    save_memory(
                        &mut file,
                        raw,
                        contents,
                        memory,
                        &config,
                        deadline,
                        &mut findings.collected.missing,
                    )
                    .map_err(Error::system("write the core"))?;
                    findings.core = Some(path);
                }
                Err(error) => {
                    let missing = format!("the process's memory cannot be read ({error})");
                    findings.collected.missing.push(missing);
                }
            }
            process = Some(image::process(
                pid,
                raw,
                &findings.threads,
                &draft.writer,
                &mut findings.collected.missing,
            )?);
            drop(stopped);
            findings.collected.held = Some(clock::monotonic().saturating_sub(began));
        }
        let written = self.write_history(&draft.writer, wanted.pid, wanted.frozen.as_ref(), &mut findings)?;
        self.finish(draft, findings, process, written, executable, command_line)
    }
}
