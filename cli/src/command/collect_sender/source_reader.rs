//! The child process that reads source files, because the sender itself reads no debug information.
//!
//! The child starts before the sender limits itself, because the sender cannot start programs then.

use super::log;
use crate::sources::{SourceAnswer, SourceRequest};
use backtrail_bundle::BundlePath;
use backtrail_bundle::sources::{INDEX, is_place};
use backtrail_collector::sender::SOURCES_COMMAND;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The longest time of an answer.
const PATIENCE: Duration = Duration::from_secs(180);

/// Starts the child process.
///
/// # Errors
/// Fails if it cannot be started.
pub fn start() -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg(SOURCES_COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
}

/// The connection to the child process.
pub struct SourceReader {
    input: ChildStdin,
    answers: Receiver<String>,
    has_failed: bool,
}

impl SourceReader {
    /// Connects to the child process.
    pub fn of(mut child: Child) -> Option<Self> {
        let (input, output) = (child.stdin.take()?, child.stdout.take()?);
        let (give, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = give.send(line);
            }
            let _ = child.wait();
        });
        Some(Self {
            input,
            answers,
            has_failed: false,
        })
    }

    /// Returns whether the child process has ended or does not answer.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the source files of a crash, by their paths in the bundle.
    pub fn collect(&mut self, crash: &str, request: &SourceRequest) -> BTreeMap<BundlePath, PathBuf> {
        let mut files = BTreeMap::new();
        let Some(answer) = self.ask(request) else {
            log(&format!(
                "crash {crash} is sent without source files: their reader ended"
            ));
            self.has_failed = true;
            return files;
        };
        for problem in answer.problems {
            log(&format!("crash {crash}: {problem}"));
        }
        for (path, file) in answer.files {
            // A crash may have taken over the child.
            let is_expected = (path == INDEX || is_place(&path)) && file.parent() == Some(&request.target);
            if let Some(path) = BundlePath::new(&path)
                .ok()
                .filter(|_| is_expected && file.is_file())
            {
                let _ = files.insert(path, file);
            }
        }
        files
    }

    fn ask(&mut self, request: &SourceRequest) -> Option<SourceAnswer> {
        let text = serde_json::to_string(request).ok()?;
        writeln!(self.input, "{text}").ok()?;
        self.input.flush().ok()?;
        let line = self.answers.recv_timeout(PATIENCE).ok()?;
        serde_json::from_str(&line).ok()
    }
}
