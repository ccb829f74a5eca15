//! Running the binary under test on a pseudo-terminal, as a person does.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use crate::backtrail::binary;
use nix::pty::{Winsize, openpty};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time after which a text that does not come is a failure.
const LIMIT: Duration = Duration::from_secs(120);

/// The output of a terminal so far.
#[derive(Default)]
struct Screen {
    text: Mutex<String>,
    changed: Condvar,
}

/// A program on a terminal of its own.
pub struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Screen>,
    reader: Option<JoinHandle<()>>,
    /// The home directory, in which the history of commands is.
    _home: tempfile::TempDir,
}

impl Terminal {
    /// Runs `backtrail ARGUMENTS...` on a terminal of that many rows and 100 columns, with these
    /// environment variables. No pager, history or color is set otherwise.
    #[track_caller]
    pub fn open<S: AsRef<OsStr>>(arguments: &[S], rows: u16, variables: &[(&str, &str)]) -> Self {
        let size = Winsize {
            ws_row: rows,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None).unwrap();
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(binary().unwrap())
            .args(arguments)
            .stdin(pair.slave.try_clone().unwrap())
            .stdout(pair.slave.try_clone().unwrap())
            .stderr(pair.slave)
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .env("HOME", home.path())
            .envs(variables.iter().copied());
        for name in [
            "BACKTRAIL_PAGER",
            "PAGER",
            "LESS",
            "XDG_STATE_HOME",
            "COLUMNS",
            "LINES",
        ] {
            if !variables.iter().any(|(set, _)| *set == name) {
                command.env_remove(name);
            }
        }
        let child = command.spawn().unwrap();
        // The command has the other end open, which the end of the output waits for.
        drop(command);
        let screen = Arc::new(Screen::default());
        let output = File::from(pair.master);
        let keys = output.try_clone().unwrap();
        let shown = Arc::clone(&screen);
        let reader = std::thread::spawn(move || read_all(output, &shown));
        Self {
            child,
            keys,
            screen,
            reader: Some(reader),
            _home: home,
        }
    }

    /// Types text at once, as a paste without brackets does. A line ends with `\r`.
    #[track_caller]
    pub fn type_text(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a text, and returns all output so far.
    #[track_caller]
    pub fn wait_for(&self, expected: &str) -> String {
        self.wait_until(expected, |text| text.contains(expected))
    }

    /// Waits until a text has come that often, and returns all output so far.
    #[track_caller]
    pub fn wait_for_times(&self, expected: &str, times: usize) -> String {
        self.wait_until(expected, |text| text.matches(expected).count() >= times)
    }

    #[track_caller]
    fn wait_until(&self, expected: &str, has_come: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        let mut text = self.screen.text.lock().unwrap();
        while !has_come(&text) {
            let left = LIMIT.saturating_sub(begun.elapsed());
            assert!(!left.is_zero(), "{expected:?} does not come:\n{text}");
            text = self.screen.changed.wait_timeout(text, left).unwrap().0;
        }
        text.clone()
    }

    /// Waits for the end of the program, and returns its exit status and all output.
    #[track_caller]
    pub fn finish(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        let text = self.screen.text.lock().unwrap().clone();
        (status.code(), text)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.reader.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Adds what the terminal shows to the screen, until its last program has ended.
fn read_all(mut output: File, screen: &Screen) {
    let mut bytes = [0; 4096];
    loop {
        let count = match output.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // Linux reports EIO once no program has the terminal open.
            Err(_) => return,
        };
        let text = String::from_utf8_lossy(&bytes[..count]);
        screen.text.lock().unwrap().push_str(&text);
        screen.changed.notify_all();
    }
}
