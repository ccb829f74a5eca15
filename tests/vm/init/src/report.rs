//! The report over the second serial line, which `xtask/src/vm/report.rs` reads and describes.

use crate::Outcome;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// The serial line.
pub struct Report {
    line: File,
}

impl Report {
    /// Opens the line, in raw mode.
    pub fn open() -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot use the second serial line: {error}");
        let line = File::options()
            .read(true)
            .write(true)
            .open("/dev/ttyS1")
            .map_err(|error| failed(&error))?;
        let mut settings = tcgetattr(&line).map_err(|error| failed(&error))?;
        cfmakeraw(&mut settings);
        tcsetattr(&line, SetArg::TCSANOW, &settings).map_err(|error| failed(&error))?;
        Ok(Self { line })
    }

    /// Announces a test.
    pub fn plan(&mut self, name: &str) -> Outcome {
        self.say(&format!("PLAN {name}"))
    }

    /// Reports the result of a test.
    pub fn result(&mut self, name: &str, outcome: &Outcome) -> Outcome {
        match outcome {
            Ok(()) => self.say(&format!("TEST {name} ok")),
            Err(why) => self.say(&format!("TEST {name} failed: {why}")),
        }
    }

    /// Writes a line for human readers.
    pub fn note(&mut self, text: &str) -> Outcome {
        self.say(&format!("NOTE {text}"))
    }

    /// Sends a packed bundle to the host, where its decode must be the whole of `recording` or its
    /// end.
    pub fn bundle(&mut self, test: &str, path: &Path, recording: &str, tail: bool) -> Outcome {
        let content = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let name = format!("{}.btz", test.replace('/', "-"));
        self.say(&format!("FILE {name} {}", content.len()))?;
        self.write(&content)?;
        let extent = if tail { "tail" } else { "same" };
        self.say(&format!("BUNDLE {test} {name} {recording} {extent}"))
    }

    /// Reports the number of unfinished bundles.
    pub fn left(&mut self, count: usize) -> Outcome {
        self.say(&format!("LEFT {count}"))
    }

    /// Reports a complete bundle.
    pub fn kept(&mut self, bundle: &str, digest: &str) -> Outcome {
        self.say(&format!("KEPT {bundle} {digest}"))
    }

    /// Reports a bundle as saved. It must be found from now on.
    pub fn saved(&mut self, bundle: &str, digest: &str) -> Outcome {
        self.say(&format!("SAVED {bundle} {digest}"))
    }

    /// Reports that a bundle is half written, and that the machine waits for its end.
    pub fn half(&mut self) -> Outcome {
        self.say("HALF")
    }

    /// Reports the end.
    pub fn done(&mut self) -> Outcome {
        self.say("DONE")?;
        nix::sys::termios::tcdrain(&self.line)
            .map_err(|error| format!("cannot empty the second serial line: {error}"))
    }

    fn say(&mut self, line: &str) -> Outcome {
        self.write(format!("{}\n", line.replace('\n', "; ")).as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome {
        self.line
            .write_all(bytes)
            .map_err(|error| format!("cannot write to the second serial line: {error}"))
    }
}
