//! A collector for one test: its configuration, daemon and spool.

use backtrail_tests::backtrail::{Run, backtrail, binary, command};
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

/// The kernel's core handler, which is machine-wide.
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// Returns whether the collector cannot run here. Each skipped test prints the reason.
pub fn cannot() -> bool {
    let pattern = File::options().write(true).open(CORE_PATTERN);
    if let Err(error) = &pattern {
        eprintln!("left out: core_pattern cannot be written ({error}); run the tests as root");
    }
    pattern.is_err()
}

/// Waits until `done` returns true.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the contents of `core_pattern`.
pub fn core_pattern() -> String {
    fs::read_to_string(CORE_PATTERN).unwrap().trim().to_owned()
}

/// The maximum number of handlers that run at once.
const CORE_PIPE_LIMIT: &str = "/proc/sys/kernel/core_pipe_limit";

/// Sets `core_pattern` until it is dropped, then restores it and the limit. A collector that finds
/// a pattern other than its own does not restore the limit.
pub struct CorePattern {
    pattern: String,
    limit: String,
}

impl CorePattern {
    pub fn set(pattern: &str) -> Self {
        let before = Self {
            pattern: core_pattern(),
            limit: fs::read_to_string(CORE_PIPE_LIMIT).unwrap(),
        };
        fs::write(CORE_PATTERN, pattern).unwrap();
        before
    }
}

impl Drop for CorePattern {
    fn drop(&mut self) {
        fs::write(CORE_PATTERN, &self.pattern).unwrap();
        fs::write(CORE_PIPE_LIMIT, &self.limit).unwrap();
    }
}

/// A folder for a collector, and the daemon after its start.
pub struct Collector {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
    /// A lock for one collector at a time, across all test processes: each would get the crashes of
    /// the others.
    _turn: Flock<File>,
}

impl Collector {
    /// Creates the folder without starting the daemon.
    pub fn new(settings: &str) -> Self {
        let pattern = File::open(CORE_PATTERN).unwrap();
        let turn = Flock::lock(pattern, FlockArg::LockExclusive).unwrap();
        // Unix sockets and core_pattern need short paths.
        let folder = tempfile::Builder::new().prefix("bt").tempdir_in("/tmp").unwrap();
        let collector = Self {
            folder,
            daemon: None,
            _turn: turn,
        };
        collector.configure(settings);
        collector
    }

    /// Creates the folder and starts the daemon.
    pub fn started(settings: &str) -> Self {
        let mut collector = Self::new(settings);
        collector.start();
        collector
    }

    /// Writes the configuration; settings of the top level come first.
    pub fn configure(&self, settings: &str) {
        let text = format!(
            "spool = {:?}\nruntime = {:?}\nlog = \"debug\"\n{settings}",
            self.spool(),
            self.folder.path().join("run")
        );
        fs::write(self.config(), text).unwrap();
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("collect.toml")
    }

    pub fn spool(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn start(&mut self) {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let before = self.log().matches(" ready").count();
        let daemon = Command::new(binary().unwrap())
            .arg("collect")
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
        until("the daemon is ready", || {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert_eq!(ended, None, "{}", self.log());
            self.log().matches(" ready").count() > before
        });
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    /// Waits until the daemon has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the daemon ends", || {
            status = self.daemon.as_mut().unwrap().try_wait().unwrap();
            status.is_some()
        });
        self.daemon = None;
        status.unwrap()
    }

    /// Ends the daemon as systemd would.
    pub fn stop(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        assert!(self.wait().success(), "{}", self.log());
    }

    /// Runs `backtrail crashes VERB … --config`.
    pub fn crashes(&self, arguments: &[&str]) -> Run {
        let mut all = vec!["crashes".to_owned()];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        all.extend(["--config".to_owned(), self.config().display().to_string()]);
        backtrail(all).unwrap()
    }

    /// Returns the output of `crashes list --json`.
    pub fn list(&self) -> Vec<Value> {
        let listed = self.crashes(&["list", "--json"]).exited(0);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        listed["crashes"].as_array().unwrap().clone()
    }

    /// Crashes a program, and returns its entry in the list.
    #[track_caller]
    pub fn crash(&self, program: &mut Command) -> Value {
        let mut child = quiet(program).spawn().unwrap();
        let pid = child.id();
        let mut status = None;
        until("the program ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        let mut found = None;
        until(
            &format!("the crash of {pid} is in the list: {}", self.log()),
            || {
                found = self.list().into_iter().find(|crash| crash["pid"] == pid);
                found.is_some()
            },
        );
        found.unwrap()
    }

    /// Runs commands of the debugger at a crash.
    pub fn debug(&self, crash: &Value, commands: &[&str]) -> String {
        let mut command = command().unwrap();
        command
            .args(["debug", "--batch"])
            .arg(crash["bundle"].as_str().unwrap());
        commands.iter().for_each(|line| {
            command.args(["-e", line]);
        });
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends a request to the control socket, and returns the status and body.
    pub fn http(&self, method: &str, path: &str) -> (u16, String) {
        use std::io::{Read, Write};
        let mut socket =
            std::os::unix::net::UnixStream::connect(self.folder.path().join("run/control.socket")).unwrap();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Returns a counter of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let (status, text) = self.http("GET", "/metrics");
        assert_eq!(status, 200);
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("backtrail_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }
}

/// Discards the output, and sets a folder in which a core may be left.
pub fn quiet(program: &mut Command) -> &mut Command {
    program
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let pid = nix::unistd::Pid::from_raw(daemon.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}
