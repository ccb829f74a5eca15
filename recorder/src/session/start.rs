//! Starts the program, or attaches to processes.

use super::Session;
use crate::Target;
use crate::error::{Error, Result};
use crate::ptrace::{self, RawTid};
use crate::recorded::RecordedProcess;
use crate::spawn;
use backtrail_process::status;
use backtrail_pt::Pid;
use std::ffi::OsString;

/// The ptrace events that every tracee reports.
const EVENTS: libc::c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;

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
        let fail = |error: Error| match error {
            Error::Ptrace { source, .. } => Error::Attach {
                pid,
                hint: attach_hint(&source),
                source,
            },
            other => other,
        };
        ptrace::seize(leader, EVENTS).map_err(fail)?;
        let mut seized = vec![leader];
        // Threads may start threads in the meantime, so this repeats until no new thread is found.
        // Threads started by a seized thread are traced automatically.
        loop {
            let new: Vec<RawTid> = status::threads(leader)
                .into_iter()
                .filter(|tid| !seized.contains(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let _ = ptrace::seize(tid, EVENTS);
                seized.push(tid);
            }
        }
        self.add_process(leader, RecordedProcess::new(leader, Vec::new(), &self.files));
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
        Ok(())
    }
}

fn attach_hint(source: &std::io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EPERM) => crate::capabilities()
            .attach_fix()
            .map(|fix| format!("; {fix}"))
            .unwrap_or_default(),
        Some(libc::ESRCH) => "; there is no such process".to_owned(),
        _ => String::new(),
    }
}
