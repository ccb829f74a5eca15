//! The guard: a small process that restores `core_pattern` when the daemon is killed.
//!
//! The guard holds the read end of a pipe whose write end only the daemon has. It sleeps until that
//! end is closed.

use crate::error::{Error, Result};
use crate::pattern::{SavedPattern, Sysctl};
use crate::runtime::{GUARD_COMMAND, Runtime};
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The pipe that keeps the guard asleep while it is open.
#[derive(Debug)]
pub struct Guard {
    alive: PipeWriter,
    /// Kept to reap the guard when it is killed.
    child: std::process::Child,
}

impl Guard {
    /// Starts the guard.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(runtime: &Runtime) -> Result<Self> {
        let start = || -> io::Result<Self> {
            let (sleeping, alive) = io::pipe()?;
            let child = Command::new(std::env::current_exe()?)
                .arg(GUARD_COMMAND)
                .arg(runtime.path())
                .stdin(sleeping)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // Signals to the daemon's process group, such as Ctrl-C, must not reach the guard.
                .process_group(0)
                .spawn()?;
            Ok(Self { alive, child })
        };
        start().map_err(Error::system("start the guard of core_pattern"))
    }

    /// Makes the guard restore `core_pattern` now, and waits for it.
    ///
    /// # Errors
    /// When the pattern cannot be restored.
    pub fn release(self) -> Result<()> {
        let Self { alive, mut child } = self;
        drop(alive);
        let ended = child.wait().map_err(Error::system("wait for the guard"))?;
        if ended.success() {
            Ok(())
        } else {
            Err(Error::Unable(
                "the guard could not restore core_pattern".to_owned(),
            ))
        }
    }

    /// Returns whether the guard is running.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// Runs the guard: waits until `alive` is closed, and then restores `core_pattern`.
///
/// # Errors
/// When the pattern cannot be restored.
pub fn run(runtime: &Runtime, mut alive: impl io::Read) -> Result<()> {
    let remembered = SavedPattern::read(&runtime.saved_pattern());
    let mut nothing = [0; 16];
    while let Ok(1..) = alive.read(&mut nothing) {}
    let _runtime_lock = match runtime.lock_after_predecessor() {
        Ok(runtime_lock) => Some(runtime_lock),
        // Another daemon has started since then, and manages the pattern.
        Err(Error::Running { .. }) => return Ok(()),
        // The directory was removed, or root no longer owns it. The remembered pattern is enough.
        Err(_) => None,
    };
    Sysctl::default().restore(runtime, remembered.as_ref()).map(drop)
}
