//! Reports the state of the program after its recorder was killed, which the recorder cannot do.
//!
//! `backtrail record` starts `backtrail last-word`, and sends it the id of the process that it
//! starts over a pipe. If the pipe closes without [`CLEAN_EXIT`], the recorder was killed.

use crate::args::LastWord;
use crate::exit::Failure;
use backtrail_pt::Pid;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLEAN_EXIT: &[u8] = b".";

/// The recorder's end of the pipe.
pub struct KillMonitor(Option<Child>);

impl KillMonitor {
    /// Starts the monitor. Recording continues if that fails.
    pub fn begin(pid: Option<u32>) -> Self {
        let start = || {
            Command::new("/proc/self/exe")
                .arg("last-word")
                .args(pid.map(|pid| pid.to_string()))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // Ctrl-C must only reach the recorder.
                .process_group(0)
                .spawn()
        };
        Self(start().ok())
    }

    /// Sends the id of the process that the recorder has started.
    pub fn started(&mut self, pid: Pid) {
        if let Some(pipe) = self.0.as_mut().and_then(|child| child.stdin.as_mut()) {
            // If this fails, the monitor reports that the process is unknown.
            let _ = writeln!(pipe, "{pid}");
        }
    }
}

impl Drop for KillMonitor {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            if let Some(mut pipe) = child.stdin.take() {
                let _ = pipe.write_all(CLEAN_EXIT);
            }
            let _ = child.wait();
        }
    }
}

/// Runs `backtrail last-word`.
pub fn run(args: &LastWord) -> Result<(), Failure> {
    let mut received = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut received);
    if received.ends_with(CLEAN_EXIT) {
        return Ok(());
    }
    let state = match (args.pid, parse_process(&received)) {
        (Some(pid), _) if keeps_running(pid) => {
            format!("process {pid} still runs, but may crash at any time: restart it")
        }
        (Some(pid), _) => format!("process {pid}, to which it was attached, has exited"),
        (None, Some(pid)) if keeps_running(pid) => {
            format!("process {pid}, the program that it started, still runs: kill it")
        }
        // `PTRACE_O_EXITKILL` (ptrace(2)) ensures that.
        (None, Some(pid)) => format!("the program that it started was killed with it (process {pid})"),
        (None, None) => "it had just started, and it is unknown whether the program had started".to_owned(),
    };
    Err(Failure::failed(format_args!(
        "the recorder was killed and saved nothing: {state}"
    )))
}

/// Returns the process that the recorder has named.
fn parse_process(received: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(received).ok()?;
    text.lines().next()?.parse().ok()
}

/// Returns whether a process still runs after a second. Most processes that exit do so sooner.
fn keeps_running(pid: u32) -> bool {
    const TIME: Duration = Duration::from_secs(1);
    const PERIOD: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    while begun.elapsed() < TIME {
        if !is_alive(pid) {
            return false;
        }
        std::thread::sleep(PERIOD);
    }
    true
}

fn is_alive(pid: u32) -> bool {
    // The state follows the name, which is in parentheses (proc(5)).
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_id_is_parsed() {
        assert_eq!(parse_process(b"123\n"), Some(123));
        assert_eq!(parse_process(b""), None);
        assert_eq!(parse_process(b"\xff\n"), None);
    }

    #[test]
    fn this_process_is_alive_and_process_zero_is_not() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(0));
    }
}
