//! Reports what the software recorder can do on this machine, by trying it.

use crate::ptrace::{self, Stop, WaitResult};
use crate::spawn;
use std::ffi::OsString;
use std::fs;

/// The abilities of the recorder, as `backtrail doctor` prints them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a child program can be traced, or why not.
    pub trace: Result<(), String>,
    /// Whether a child program can be single-stepped, or why not.
    pub step: Result<(), String>,
    /// `kernel.yama.ptrace_scope`: 0 allows attaching to every process of the user, 1 to
    /// descendants, 2 to administrators only, 3 to no process. `None`: this kernel has no Yama,
    /// which means 0.
    pub ptrace_scope: Option<u8>,
}

impl Capabilities {
    /// Returns what the user must do before running processes can be attached to, or `None` if
    /// nothing is missing.
    #[must_use]
    pub fn attach_fix(&self) -> Option<&'static str> {
        match self.ptrace_scope {
            None | Some(0) => None,
            Some(1 | 2) => Some(
                "run as root, or allow it until the next boot by `sudo sysctl kernel.yama.ptrace_scope=0`",
            ),
            Some(_) => Some("kernel.yama.ptrace_scope is 3, which forbids tracing until the next boot"),
        }
    }
}

/// Tries to trace and single-step the program `true`.
#[must_use]
pub fn capabilities() -> Capabilities {
    let ptrace_scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    // A thread of its own, because ptrace and waitpid are bound to the thread. Tracees that are
    // left over end with it.
    let tried = std::thread::spawn(try_step).join();
    let (trace, step) =
        tried.unwrap_or_else(|_| (Err("the trial failed".to_owned()), Err("not tried".to_owned())));
    Capabilities {
        trace,
        step,
        ptrace_scope,
    }
}

type TrialResult = Result<(), String>;

fn try_step() -> (TrialResult, TrialResult) {
    let command = [OsString::from("true")];
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
    let spawned = match spawn::spawn(&command, true, None, options) {
        Ok(spawned) => spawned,
        Err(error) => {
            return (
                Err(error.to_string()),
                Err("a program cannot be traced".to_owned()),
            );
        }
    };
    let step = step_some(spawned.pid);
    ptrace::kill(spawned.pid);
    while matches!(
        ptrace::wait_any(),
        Ok(WaitResult::Report(..) | WaitResult::Interrupted)
    ) {}
    (Ok(()), step)
}

/// Single-steps the first instructions of the program.
fn step_some(pid: ptrace::RawTid) -> TrialResult {
    let mut steps = 0;
    while steps < 3 {
        let stop = match ptrace::wait_any().map_err(|error| error.to_string())? {
            WaitResult::Report(_, stop) => stop,
            WaitResult::Interrupted => continue,
            WaitResult::NoTracees => return Err("the program ended unexpectedly".to_owned()),
        };
        match stop {
            Stop::Event(libc::PTRACE_EVENT_EXEC) => {}
            Stop::Signal(libc::SIGTRAP) => steps += 1,
            other => return Err(format!("stepping a program gave {other:?} instead of a trap")),
        }
        ptrace::step(pid, 0).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_fix_exists_only_if_needed() {
        let with = |ptrace_scope| Capabilities {
            trace: Ok(()),
            step: Ok(()),
            ptrace_scope,
        };
        assert_eq!(with(None).attach_fix(), None);
        assert!(
            with(Some(1))
                .attach_fix()
                .is_some_and(|fix| fix.contains("sysctl"))
        );
        assert!(with(Some(3)).attach_fix().is_some());
    }

    #[test]
    fn capabilities_are_consistent() {
        let found = capabilities();
        assert!(found.trace.is_ok() || found.step.is_err(), "{found:?}");
    }
}
