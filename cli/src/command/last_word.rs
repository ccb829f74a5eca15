//! Says what became of the program when the recorder is killed, which cannot say so itself.
//!
//! `backtrail record` starts `backtrail last-word` and holds a pipe to it. The pipe carries the id
//! of the started process. When the pipe closes without [`ALL_IS_WELL`], the recorder was killed.

use crate::args::LastWord;
use crate::exit::Failure;
use backtrail_pt::Pid;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ALL_IS_WELL: &[u8] = b".";

/// The recorder's end.
pub struct Witness(Option<Child>);

impl Witness {
    /// Starts the witness; recording goes on without where that fails.
    pub fn begin(pid: Option<u32>) -> Self {
        let start = || {
            Command::new("/proc/self/exe")
                .arg("last-word")
                .args(pid.map(|pid| pid.to_string()))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // Ctrl-C is for the recorder.
                .process_group(0)
                .spawn()
        };
        Self(start().ok())
    }

    /// Says which process the recorder has started.
    pub fn started(&mut self, pid: Pid) {
        if let Some(pipe) = self.0.as_mut().and_then(|child| child.stdin.as_mut()) {
            // Without it the last word is that nothing is known.
            let _ = writeln!(pipe, "{pid}");
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            if let Some(mut pipe) = child.stdin.take() {
                let _ = pipe.write_all(ALL_IS_WELL);
            }
            let _ = child.wait();
        }
    }
}

/// `backtrail last-word`.
pub fn run(args: &LastWord) -> Result<(), Failure> {
    let mut told = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut told);
    if told.ends_with(ALL_IS_WELL) {
        return Ok(());
    }
    let fate = match (args.pid, process_in(&told)) {
        (Some(pid), _) if runs_on(pid) => {
            format!("process {pid} continues without it, and may end at any time: restart it")
        }
        (Some(pid), _) => format!("process {pid}, which it was attached to, has ended"),
        (None, Some(pid)) if runs_on(pid) => {
            format!("process {pid}, the program that it started, continues without it: end it")
        }
        // `PTRACE_O_EXITKILL` (ptrace(2)) sees to it.
        (None, Some(pid)) => format!("the program that it started ended with it (process {pid})"),
        (None, None) => "it had just started, and the state of the program is unknown".to_owned(),
    };
    Err(Failure::failed(format_args!(
        "the recorder was killed and has saved nothing: {fate}"
    )))
}

/// The process that the recorder has named.
fn process_in(told: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(told).ok()?;
    text.lines().next()?.parse().ok()
}

/// Whether a process is still there after a second: most end sooner, if they do.
fn runs_on(pid: u32) -> bool {
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
    fn the_named_process_is_read() {
        assert_eq!(process_in(b"123\n"), Some(123));
        assert_eq!(process_in(b""), None);
        assert_eq!(process_in(b"\xff\n"), None);
    }

    #[test]
    fn this_process_is_alive_and_none_has_number_zero() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(0));
    }
}
