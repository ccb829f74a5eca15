//! Child processes with a strict time limit.

use crate::programs::Ending;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The maximum time of a child.
pub type Limit = Duration;

/// How a child ended, and its output.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit status or signal.
    pub ending: Ending,
    /// Everything on stdout.
    pub stdout: Vec<u8>,
    /// Everything on stderr.
    pub stderr: String,
    /// Wall-clock time from start to end.
    pub seconds: f64,
}

impl Ended {
    /// Returns the run if its exit status is 0.
    ///
    /// # Errors
    ///
    /// Another status or a signal; the text ends with the last lines of stderr.
    pub fn succeeded(self, what: &str) -> io::Result<Self> {
        if self.ending == Ending::Exit(0) {
            return Ok(self);
        }
        Err(io::Error::other(format!("{what}: {}", self.told())))
    }

    /// Returns the ending and the last lines on stderr, on one line.
    #[must_use]
    pub fn told(&self) -> String {
        let lines: Vec<&str> = self
            .stderr
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let tail = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default();
        let ending = match self.ending {
            Ending::Exit(status) => format!("exit status {status}"),
            Ending::Signal(signal) => format!("killed by signal {signal}"),
        };
        format!("{ending}: {}", tail.join(" / "))
    }
}

/// A running child in a process group of its own, killed with all its descendants when dropped.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    started: Instant,
    what: String,
    stdout: PathBuf,
    stderr: PathBuf,
    ended: bool,
}

impl Child {
    /// Starts a child without input. Its outputs go to `NAME.out` and `NAME.err` in `folder`, so
    /// that a grandchild that keeps a pipe open does not block the test.
    ///
    /// # Errors
    ///
    /// The child cannot be started.
    pub fn start(mut command: Command, folder: &Path, name: &str) -> io::Result<Self> {
        let (stdout, stderr) = (
            folder.join(format!("{name}.out")),
            folder.join(format!("{name}.err")),
        );
        let what = format!("{} ({name})", command.get_program().to_string_lossy());
        command
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .process_group(0);
        let started = Instant::now();
        let process = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {what}: {error}")))?;
        Ok(Self {
            process,
            started,
            what,
            stdout,
            stderr,
            ended: false,
        })
    }

    /// Starts a child and waits for its end.
    ///
    /// # Errors
    ///
    /// The child cannot be started, or takes longer than `limit`.
    pub fn run(command: Command, folder: &Path, name: &str, limit: Limit) -> io::Result<Ended> {
        Self::start(command, folder, name)?.wait(limit)
    }

    /// Returns whether the child still runs.
    ///
    /// # Errors
    ///
    /// The kernel reports no status.
    pub fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.process.try_wait()?.is_none())
    }

    /// Returns the last line on stderr so far.
    #[must_use]
    pub fn said(&self) -> String {
        let stderr = fs::read(&self.stderr).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&stderr);
        stderr.lines().last().unwrap_or("nothing on stderr").to_owned()
    }

    /// Waits for the end of the child.
    ///
    /// # Errors
    ///
    /// The child takes longer than `limit` from its start, and is killed.
    pub fn wait(mut self, limit: Limit) -> io::Result<Ended> {
        loop {
            if let Some(status) = self.process.try_wait()? {
                let seconds = self.started.elapsed().as_secs_f64();
                self.ended = true;
                return Ok(Ended {
                    ending: ending(status),
                    stdout: fs::read(&self.stdout)?,
                    stderr: String::from_utf8_lossy(&fs::read(&self.stderr)?).into_owned(),
                    seconds,
                });
            }
            if self.started.elapsed() > limit {
                self.kill_tree();
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "{} did not end within {} s: {}",
                        self.what,
                        limit.as_secs(),
                        self.said()
                    ),
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the process group and every descendant, including those in other groups and sessions.
    fn kill_tree(&mut self) {
        let Ok(root) = i32::try_from(self.process.id()) else {
            return;
        };
        let tree = descendants(root);
        // The root first: a recorder that has ended does not react to the deaths below it.
        let _ = kill(Pid::from_raw(root), Signal::SIGKILL);
        let _ = kill(Pid::from_raw(-root), Signal::SIGKILL);
        for pid in tree {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.process.wait();
        self.ended = true;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.ended {
            self.kill_tree();
        }
    }
}

fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exit(code),
        (None, signal) => Ending::Signal(signal.unwrap_or_default()),
    }
}

/// Returns every descendant of `root`, by `/proc/PID/stat`.
fn descendants(root: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name before the parent is in parentheses and may contain any character.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        let children = parents
            .iter()
            .filter(|&&(_, of)| of == parent)
            .map(|&(pid, _)| pid);
        found.extend(children);
        at += 1;
    }
    found.remove(0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_tells_its_ending_and_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(20);
        let ended = Child::run(shell("echo out; echo err >&2; exit 3"), folder.path(), "a", limit).unwrap();
        assert_eq!((ended.ending, &*ended.stdout), (Ending::Exit(3), &b"out\n"[..]));
        assert_eq!(ended.told(), "exit status 3: err");
        let ended = Child::run(shell("kill -9 $$"), folder.path(), "b", limit).unwrap();
        assert_eq!(ended.ending, Ending::Signal(9));
    }

    #[test]
    fn no_descendant_outlives_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let script = "setsid sleep 987 & echo $! > sleeper; sleep 988";
        let mut command = shell(script);
        command.current_dir(folder.path());
        let error = Child::run(command, folder.path(), "c", Duration::from_millis(500)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let sleeper = fs::read_to_string(folder.path().join("sleeper")).unwrap();
        let stat = Path::new("/proc").join(sleeper.trim()).join("stat");
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < deadline, "the sleeper outlived its parent");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
