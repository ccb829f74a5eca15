//! Saves one bundle for each crash during a long recording, and for each other process that the
//! sink keeps.

use super::Session;
use crate::Ending;
use crate::core_dump;
use crate::crash_sink::{CrashDraft, EndedProcess, Memory};
use crate::destination::{Destination, PendingCrash};
use crate::error::{Error, Result};
use crate::ptrace::RawTid;
use crate::recorded::RecordedProcess;
use crate::save;
use backtrail_bundle::core::CoreContents;
use backtrail_bundle::manifest::Crash;
use backtrail_bundle::{BundlePath, Writer};
use backtrail_process::{service, status};
use backtrail_pt::Pid;
use std::time::SystemTime;

/// The number of newest notes kept, because a session may run for months.
const MAX_NOTES: usize = 64;
/// The maximum distance of the stack pointer below the stack after a stack overflow. The stack is
/// still found within it.
const OVERRUN: u64 = 1 << 20;

impl Session<'_> {
    /// Adds a process, or replaces it after it has executed another program.
    pub(super) fn add_process(&mut self, pid: RawTid, process: RecordedProcess) {
        let known = self.processes.insert(pid, process).is_some();
        self.init_state(pid, known);
        self.limit_open_files();
        if let Destination::Crashes(crashes) = &mut self.destination
            && !known
        {
            crashes.sink.process_began(Pid(pid as u32));
        }
    }

    /// Removes a process. Saves its bundle, if it has one.
    pub(super) fn remove_process(&mut self, pid: RawTid) {
        self.process_states.remove(&pid);
        if !matches!(self.destination, Destination::Crashes(_)) {
            self.processes.remove(&pid);
            return;
        }
        if !self.processes.contains_key(&pid) {
            return;
        }
        for tid in self.tids(|thread| thread.pid == pid) {
            self.record(tid, None);
        }
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        for ended in self.ended.iter().filter(|ended| ended.pid == pid) {
            self.names.release(&ended.file);
        }
        self.ended.retain(|ended| ended.pid != pid);
        let surplus = self.notes.len().saturating_sub(MAX_NOTES);
        self.notes.drain(..surplus);
        let Destination::Crashes(crashes) = &mut self.destination else {
            return;
        };
        if let Some(draft) = crashes.drafts.remove(&pid) {
            let calibration = crashes.calibration;
            let (timing, tsc) = (calibration.params(), calibration.conversion());
            let (heap, notes) = (self.settings.heap, self.notes.clone());
            match save::save_process(Pid(pid as u32), draft, process, timing, tsc, heap, notes) {
                Ok((crash, saved)) => {
                    crashes.saved.threads += saved.threads;
                    crashes.saved.bytes += saved.bytes;
                    crashes.saved.dropped += saved.dropped;
                    crashes.sink.save(crash);
                }
                Err(error) => crashes.sink.failed(Pid(pid as u32), error),
            }
        }
        crashes.sink.process_ended(Pid(pid as u32));
    }

    /// Saves the crashes of processes whose end was not reported, after tracing has ended.
    pub(super) fn end_processes(&mut self) {
        if let Destination::Crashes(_) = self.destination {
            let pids: Vec<RawTid> = self.processes.keys().copied().collect();
            for pid in pids {
                self.end_process(pid, Ending::Running);
            }
            let mut unrecorded: Vec<RawTid> = self.unrecorded.pids().collect();
            unrecorded.sort_unstable();
            unrecorded.dedup();
            self.counts.unrecorded += unrecorded.len();
        }
    }

    /// Removes a process that has ended, or still runs when recording ends. Begins its bundle
    /// before, if the sink wants one.
    pub(super) fn end_process(&mut self, pid: RawTid, ending: Ending) {
        let Some(process) = self.processes.get(&pid) else {
            return;
        };
        self.counts.recorded += 1;
        if let Destination::Crashes(crashes) = &mut self.destination
            && !crashes.drafts.contains_key(&pid)
        {
            let ended = EndedProcess {
                pid: Pid(pid as u32),
                program: &process.name,
                ending,
            };
            if let Some(writer) = crashes.sink.ended(&ended) {
                let draft = PendingCrash {
                    writer,
                    crash: None,
                    ending: ending.of_program(),
                    core: None,
                    context: None,
                    service: None,
                    missing: Vec::new(),
                    at: SystemTime::now(),
                };
                crashes.drafts.insert(pid, draft);
            }
        }
        self.remove_process(pid);
    }

    /// Begins the crash bundle of a halted process with the data that its end would destroy.
    pub(super) fn begin_crash(&mut self, crash: Crash) {
        let (pid, tid) = (crash.pid.0 as RawTid, crash.tid.0 as RawTid);
        let at = SystemTime::now();
        let name = status::thread_name(pid, pid).unwrap_or_default();
        let program = self.processes.get(&pid).map(|process| process.name.clone());
        let Destination::Crashes(crashes) = &mut self.destination else {
            return;
        };
        let Some(CrashDraft { writer, memory }) =
            crashes.sink.crashed(&crash, &name, &program.unwrap_or_default())
        else {
            return;
        };
        let mut missing = Vec::new();
        let mut contents = self.describe_core(pid, tid);
        limit_memory(&mut contents, memory, &mut missing);
        let core = write_core(&writer, pid, &contents);
        let context = core_dump::published_context(pid, &contents);
        let Destination::Crashes(crashes) = &mut self.destination else {
            return;
        };
        match core {
            Ok(core) => {
                let draft = PendingCrash {
                    writer,
                    crash: Some(crash),
                    ending: None,
                    core: Some(core),
                    context,
                    service: service::of_process(pid),
                    missing,
                    at,
                };
                crashes.drafts.insert(pid, draft);
            }
            Err(error) => crashes.sink.failed(crash.pid, error),
        }
    }
}

fn write_core(writer: &Writer, pid: RawTid, contents: &CoreContents) -> Result<BundlePath> {
    let path = BundlePath::new("core")?;
    let mut file = writer.create_file(&path)?;
    core_dump::write(&mut file, pid, contents).map_err(Error::system("write the core"))?;
    Ok(path)
}

/// Removes memory that exceeds the limit from a core.
fn limit_memory(contents: &mut CoreContents, memory: Memory, missing: &mut Vec<String>) {
    match memory {
        Memory::UpTo(limit) => {
            let size = backtrail_process::core_dump::size(contents);
            if size <= limit {
                return;
            }
            missing.push(format!(
                "the process had {} MiB of memory, more than the limit of {} MiB; only stacks are saved",
                size >> 20,
                limit >> 20
            ));
        }
        Memory::Stacks => {}
        Memory::Nothing => {
            contents.segments.iter_mut().for_each(|segment| segment.saved = 0);
            return;
        }
    }
    let pointers: Vec<u64> = contents
        .threads
        .iter()
        .map(|thread| thread.registers.rsp)
        .collect();
    for segment in &mut contents.segments {
        let (start, end) = (segment.start.0, segment.start.0.saturating_add(segment.size));
        let is_stack = |pointer: &u64| (start.saturating_sub(OVERRUN)..end).contains(pointer);
        if !(segment.writable && pointers.iter().any(is_stack)) {
            segment.saved = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::core::{CoreThread, Registers, Segment};
    use backtrail_pt::Avma;

    fn process() -> CoreContents {
        let segment = |start, size| Segment {
            start: Avma(start),
            size,
            saved: size,
            readable: true,
            writable: true,
            executable: false,
        };
        CoreContents {
            threads: vec![CoreThread {
                registers: Registers {
                    rsp: 0x7fff_0000_1000,
                    ..Registers::default()
                },
                ..CoreThread::default()
            }],
            segments: vec![segment(0x10_0000, 4 << 20), segment(0x7fff_0000_0000, 0x2000)],
            ..CoreContents::default()
        }
    }

    fn saved(memory: Memory) -> (Vec<u64>, usize) {
        let (mut contents, mut missing) = (process(), Vec::new());
        limit_memory(&mut contents, memory, &mut missing);
        let saved = contents.segments.iter().map(|segment| segment.saved).collect();
        (saved, missing.len())
    }

    #[test]
    fn oversized_process_keeps_only_stacks() {
        assert_eq!(saved(Memory::UpTo(8 << 20)), (vec![4 << 20, 0x2000], 0));
        assert_eq!(saved(Memory::UpTo(1 << 20)), (vec![0, 0x2000], 1));
        assert_eq!(saved(Memory::Stacks), (vec![0, 0x2000], 0));
        assert_eq!(saved(Memory::Nothing), (vec![0, 0], 0));
    }
}
