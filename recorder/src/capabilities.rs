//! What the software recorder can do on this machine, found out by trying it.

use crate::ptrace::{self, Stop, Wait};
use crate::spawn;
use std::ffi::OsString;
use std::fs;

/// Answers for `backtrail doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// A program of our own can be traced; else why not.
    pub trace: Result<(), String>,
    /// It can be stepped; else why not.
    pub step: Result<(), String>,
    /// `kernel.yama.ptrace_scope`: 0 every process of the user may be attached to, 1 only descendants,
    /// 2 only by an administrator, 3 none. `None`: this kernel has no Yama, as 0.
    pub ptrace_scope: Option<u8>,
}

impl Capabilities {
    /// What to do so that running processes can be attached to; `None`: nothing.
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

/// Tries to trace and step a program (`/proc/self/exe` is not run: `true` is).
#[must_use]
pub fn capabilities() -> Capabilities {
    let ptrace_scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    // On a thread of its own: waiting is by thread, and what is left over ends with it.
    let tried = std::thread::spawn(try_step).join();
    let (trace, step) =
        tried.unwrap_or_else(|_| (Err("the trial failed".to_owned()), Err("not tried".to_owned())));
    Capabilities {
        trace,
        step,
        ptrace_scope,
    }
}

type Tried = Result<(), String>;

fn try_step() -> (Tried, Tried) {
    let command = [OsString::from("true")];
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
    let spawned = match spawn::spawn(&command, true, None, options) {
        Ok(spawned) => spawned,
        Err(error) => {
            return (
                Err(error.to_string()),
                Err("a program cannot be traced at all".to_owned()),
            );
        }
    };
    let step = step_some(spawned.pid);
    ptrace::kill(spawned.pid);
    while matches!(ptrace::wait_any(), Ok(Wait::Report(..) | Wait::Interrupted)) {}
    (Ok(()), step)
}

/// Steps past the first instructions of the program.
fn step_some(pid: ptrace::RawTid) -> Tried {
    let mut steps = 0;
    while steps < 3 {
        let stop = match ptrace::wait_any().map_err(|error| error.to_string())? {
            Wait::Report(_, stop) => stop,
            Wait::Interrupted => continue,
            Wait::Nobody => return Err("the program vanished".to_owned()),
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
    fn the_fix_is_said_where_there_is_one() {
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
    fn asking_leaves_an_answer() {
        let found = capabilities();
        assert!(found.trace.is_ok() || found.step.is_err(), "{found:?}");
    }
}
