//! The guard: a small process that puts `core_pattern` back when the daemon is killed.
//!
//! It holds the reading end of a pipe whose other end only the daemon has, and sleeps until that end is gone.

use crate::error::{Error, Result};
use crate::pattern::{SavedPattern, Sysctl};
use crate::runtime::Runtime;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The command that [`run`] is behind.
pub(crate) const COMMAND: &str = "core-guard";

/// As long as it lives, the guard sleeps.
#[derive(Debug)]
pub struct Guard {
    alive: PipeWriter,
    /// Reaps it, should it be killed.
    child: std::process::Child,
}

impl Guard {
    /// Starts it.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn start(runtime: &Runtime) -> Result<Self> {
        let start = || -> io::Result<Self> {
            let (sleeping, alive) = io::pipe()?;
            let child = Command::new(std::env::current_exe()?)
                .arg(COMMAND)
                .arg(runtime.path())
                .stdin(sleeping)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // What is sent to the daemon's group, Ctrl-C say, is not for the guard.
                .process_group(0)
                .spawn()?;
            Ok(Self { alive, child })
        };
        start().map_err(Error::system("start the guard of core_pattern"))
    }

    /// Has it restore now, and waits until it has.
    ///
    /// # Errors
    /// When it cannot.
    pub fn release(self) -> Result<()> {
        let Self { alive, mut child } = self;
        drop(alive);
        let ended = child.wait().map_err(Error::system("wait for the guard"))?;
        if ended.success() {
            Ok(())
        } else {
            Err(Error::Unable(
                "the guard could not put core_pattern back".to_owned(),
            ))
        }
    }

    /// Whether it still stands.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// The guard's whole life: it waits for the end of `alive`, and restores what the daemon of `runtime` left.
///
/// # Errors
/// When it cannot be restored.
pub fn run(runtime: &Runtime, mut alive: impl io::Read) -> Result<()> {
    let remembered = SavedPattern::read(&runtime.saved_pattern());
    let mut nothing = [0; 16];
    while let Ok(1..) = alive.read(&mut nothing) {}
    let _runtime_lock = match runtime.lock_after_predecessor() {
        Ok(runtime_lock) => Some(runtime_lock),
        // Another daemon that has come meanwhile minds it itself.
        Err(Error::Running { .. }) => return Ok(()),
        // The directory is gone, or not root's any more: what is remembered is enough.
        Err(_) => None,
    };
    Sysctl::default().restore(runtime, remembered.as_ref()).map(drop)
}
