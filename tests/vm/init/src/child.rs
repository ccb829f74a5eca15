//! Programs that tests run. Their process id is known before they start.

#![allow(unsafe_code)]

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The process of a program before its start.
pub struct Waiting {
    child: Child,
}

impl Waiting {
    /// Starts a process that waits, and then becomes `program` on that processor alone.
    pub fn start(program: &str, processor: usize) -> Result<Self, String> {
        let mut child = Command::new("/init")
            .args(["later", &processor.to_string(), program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        // The process has finished its own `execve` when it prints a byte. The next `execve` is the
        // program's.
        let mut output = child.stdout.take().ok_or("the process has no output")?;
        output
            .read_exact(&mut [0])
            .map_err(|error| format!("the process for {program} does not answer: {error}"))?;
        Ok(Self { child })
    }

    /// Returns the id of the process, which has one thread.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts the program.
    pub fn begin(mut self) -> Result<Child, String> {
        let mut input = self.child.stdin.take().ok_or("the process has no input")?;
        input
            .write_all(b"!")
            .map_err(|error| format!("cannot let the program begin: {error}"))?;
        Ok(self.child)
    }
}

/// `later PROCESSOR PROGRAM …`: prints a byte, waits for one, then becomes the program.
pub fn later(processor: &str, program: &str, arguments: &[&str]) -> ExitCode {
    let pinned = processor.parse().ok().and_then(|processor: usize| {
        let mut set = CpuSet::new();
        set.set(processor).ok()?;
        sched_setaffinity(Pid::from_raw(0), &set).ok()
    });
    let ready = |_| {
        std::io::stdout()
            .write_all(b"!")
            .and_then(|()| std::io::stdout().flush())
            .ok()
    };
    let told = |_| std::io::stdin().read_exact(&mut [0]).ok();
    if pinned.and_then(ready).and_then(told).is_none() {
        return ExitCode::FAILURE;
    }
    let mut program_itself = Command::new(program);
    let error = program_itself
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .exec();
    eprintln!("cannot run {program}: {error}");
    ExitCode::FAILURE
}

/// Runs `act` while the kernel removes ended children at once.
pub fn unwaited<T>(act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let set = |handler| {
        // SAFETY: both handlers are constants of the kernel.
        unsafe { signal(Signal::SIGCHLD, handler) }
            .map_err(|error| format!("cannot say what becomes of children: {error}"))
    };
    let before = set(SigHandler::SigIgn)?;
    let result = act();
    set(before)?;
    result
}

/// Waits for the end of a child, and returns the signal that killed it.
pub fn killed_by(child: &mut Child, limit: Duration) -> Result<i32, String> {
    let begin = Instant::now();
    loop {
        let status = child
            .try_wait()
            .map_err(|error| format!("cannot wait for the program: {error}"))?;
        match status {
            Some(status) => {
                return status
                    .signal()
                    .ok_or_else(|| format!("the program was not killed: {status}"));
            }
            None if begin.elapsed() > limit => {
                child.kill().ok();
                child.wait().ok();
                return Err(format!("the program was not dead after {} s", limit.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
