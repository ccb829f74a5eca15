//! Starts the program, or attaches to processes.

use super::Session;
use crate::Target;
use crate::error::{Error, Result};
use crate::options::Engine;
use crate::ptrace::{self, RawTid};
use crate::recorded::RecordedProcess;
use crate::spawn;
use backtrail_process::{maps, status, uprobes};
use backtrail_pt::Pid;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// The ptrace events that every tracee reports.
const EVENTS: libc::c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESYSGOOD;

/// The time limit for the first stop of attached threads.
const ATTACH_TIMEOUT: Duration = Duration::from_millis(500);

impl Session<'_> {
    /// Starts the program or attaches to the processes.
    pub(crate) fn begin(&mut self, target: &Target, randomize: bool) -> Result<()> {
        match target {
            Target::Command(command) => self.start(command, randomize),
            Target::Processes(pids) => {
                self.root = pids.first().ok_or(Error::NoCommand)?.0 as RawTid;
                pids.iter().try_for_each(|pid| self.attach(*pid))
            }
        }
    }

    fn start(&mut self, command: &[OsString], randomize: bool) -> Result<()> {
        let spawned = spawn::spawn(
            command,
            randomize,
            self.limit.before(),
            EVENTS | libc::PTRACE_O_EXITKILL,
        )?;
        (self.root, self.owns_program) = (spawned.pid, true);
        self.shared.program.set_started(spawned.pid);
        self.pending = Some(spawned);
        Ok(())
    }

    fn attach(&mut self, pid: Pid) -> Result<()> {
        let leader = pid.0 as RawTid;
        if self.settings.engine == Engine::Step && uprobes::were_hit(&maps::maps(leader)) {
            return Err(Error::StepsOverUprobes(pid));
        }
        let fail = |tid: RawTid, error: Error| match error {
            Error::Ptrace { source, .. } => Error::Attach {
                pid,
                hint: attach_hint(tid, &source),
                source,
            },
            other => other,
        };
        let mut seized = match ptrace::seize(leader, EVENTS) {
            Ok(()) => vec![leader],
            // The first thread has ended, but others may continue.
            Err(error) if !error.is_gone() && status::has_ended(leader) => Vec::new(),
            Err(error) => return Err(fail(leader, error)),
        };
        let mut tried = vec![leader];
        // Threads may start threads in the meantime, so this repeats until no new thread is found.
        // Threads started by a seized thread are traced automatically.
        loop {
            let new: Vec<RawTid> = status::threads(leader)
                .into_iter()
                .filter(|tid| !tried.contains(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                tried.push(tid);
                // Threads of the kernel, such as those of io_uring, run no code of the program.
                // They never stop.
                if status::is_kernel_thread(tid) {
                    continue;
                }
                match ptrace::seize(tid, EVENTS) {
                    Ok(()) => seized.push(tid),
                    Err(error) if error.is_gone() || status::has_ended(tid) => {}
                    // A seized thread has started it just now.
                    Err(_) if is_traced_by_us(tid) => {}
                    // A thread that is not traced could write to code that the others translate.
                    Err(error) => return Err(fail(tid, error)),
                }
            }
        }
        if seized.is_empty() {
            return Err(Error::Exited(pid));
        }
        let process = RecordedProcess {
            shared_memory: self.without_shared_memory(),
            ..RecordedProcess::new(leader, Vec::new(), &self.files)
        };
        self.add_process(leader, process);
        self.free = ptrace::affinity(leader);
        self.attached.extend(&seized);
        for tid in seized {
            if let Some(cpu) = &self.cpu {
                self.pinned.extend(ptrace::affinity(tid).map(|free| (tid, free)));
                ptrace::set_affinity(tid, cpu);
            }
            // A thread that has ended needs no stop.
            let _ = ptrace::interrupt(tid);
        }
        self.attach_deadline = Some(Instant::now() + ATTACH_TIMEOUT);
        Ok(())
    }

    /// Handles attached threads that have not stopped in time. Fails if a process has no other
    /// thread.
    pub(super) fn on_attach_timeout(&mut self) -> Result<()> {
        self.attach_deadline = None;
        let mut waiting: Vec<RawTid> = self.attached.iter().copied().collect();
        waiting.sort_unstable();
        for tid in waiting {
            let Some(pid) = status::thread_group(tid) else {
                continue;
            };
            if status::has_ended(tid) {
                continue;
            }
            if status::is_runnable(tid) {
                // The thread stops as soon as it gets a processor.
                self.attach_deadline = Some(Instant::now() + ATTACH_TIMEOUT);
                continue;
            }
            if !self.threads.values().any(|thread| thread.pid == pid) {
                return Err(Error::DoesNotStop(Pid(pid as u32)));
            }
            let name = status::thread_name(pid, tid).unwrap_or_default();
            self.note_once(format!(
                "thread {tid} ({name}) of process {pid} did not stop at once, because it waits in the kernel; its \
                 trace begins when it stops"
            ));
        }
        Ok(())
    }
}

/// Returns whether this process traces a thread.
fn is_traced_by_us(tid: RawTid) -> bool {
    let own = RawTid::try_from(std::process::id()).ok();
    status::tracer(tid).is_some_and(|tracer| status::thread_group(tracer) == own)
}

fn attach_hint(tid: RawTid, source: &std::io::Error) -> String {
    if let Some(tracer) = status::tracer(tid) {
        let name = status::thread_name(tracer, tracer).unwrap_or_default();
        return format!("; process {tracer} ({name}) traces thread {tid} already");
    }
    match source.raw_os_error() {
        Some(libc::EPERM) => crate::capabilities()
            .attach_fix()
            .map(|fix| format!("; {fix}"))
            .unwrap_or_default(),
        Some(libc::ESRCH) => "; there is no such process".to_owned(),
        _ => String::new(),
    }
}
