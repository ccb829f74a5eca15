//! A running daemon: started as by systemd, queried by its own commands, stopped.

use crate::Outcome;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub const BACKTRAIL: &str = "/usr/bin/backtrail";
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The folder of its log and other files.
    pub place: PathBuf,
    pub spool: PathBuf,
    /// `trace.source`.
    pub source: &'static str,
    /// The limit of the spool in bytes, if configured.
    pub spool_limit: Option<u64>,
}

impl Setup {
    /// Returns a configuration with Intel PT and a separate spool.
    pub fn at(place: &Path) -> Self {
        Self {
            place: place.to_owned(),
            spool: place.join("spool"),
            source: "hardware",
            spool_limit: None,
        }
    }

    fn write(&self) -> Result<PathBuf, String> {
        let limit = self
            .spool_limit
            .map_or_else(String::new, |bytes| format!("spool_limit = {bytes}\n"));
        let text = format!(
            "spool = \"{}\"\nruntime = \"{}/run\"\n{limit}[trace]\nsource = \"{}\"\nring = \"128K\"\n",
            self.spool.display(),
            self.place.display(),
            self.source
        );
        let config = self.place.join("collect.toml");
        fs::create_dir_all(&self.place)
            .and_then(|()| fs::write(&config, text))
            .map_err(|error| format!("cannot write {}: {error}", config.display()))?;
        Ok(config)
    }
}

/// A running daemon.
pub struct Daemon {
    process: Child,
    config: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts the daemon, and waits until it reports that it is ready.
    pub fn start(setup: &Setup) -> Result<Self, String> {
        let place = &setup.place;
        let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", place.display());
        let config = setup.write()?;
        let log = place.join("log");
        // The socket for readiness, as systemd sets it (sd_notify(3)).
        let path = place.join("notify");
        fs::remove_file(&path).ok();
        let notify = UnixDatagram::bind(&path).map_err(failed)?;
        notify.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let process = Command::new(BACKTRAIL)
            .arg("collect")
            .arg("--config")
            .arg(&config)
            .env("NOTIFY_SOCKET", &path)
            .stderr(File::create(&log).map_err(failed)?)
            .spawn()
            .map_err(|error| format!("cannot start the daemon: {error}"))?;
        let daemon = Self { process, config, log };
        let mut message = [0; 4096];
        loop {
            let length = notify.recv(&mut message).map_err(|error| {
                format!("the daemon does not become ready ({error}): {}", daemon.logged())
            })?;
            let text = String::from_utf8_lossy(&message[..length]);
            if text.lines().any(|line| line == "READY=1") {
                return Ok(daemon);
            }
        }
    }

    /// Lets the daemon read its configuration again.
    pub fn reload(&mut self, setup: &Setup) -> Outcome {
        setup.write()?;
        self.signal(Signal::SIGHUP)?;
        self.until("has not read its configuration again", |daemon| {
            Ok(daemon.logged().contains("configuration reloaded").then_some(()))
        })
    }

    /// Returns the entries of `crashes list`, in its order.
    pub fn list(&self) -> Result<Vec<Value>, String> {
        let text = said(
            Command::new(BACKTRAIL)
                .args(["crashes", "list", "--json", "--config"])
                .arg(&self.config),
        )?;
        let list: Value = serde_json::from_str(&text)
            .map_err(|error| format!("the list of crashes is no JSON ({error}): {text}"))?;
        Ok(rows(&list).to_vec())
    }

    /// Waits until the crash of a process is saved, and returns its list entry.
    pub fn crash_of(&self, pid: u32) -> Result<Value, String> {
        let id = self.saved(pid)?;
        let row = self.list()?.into_iter().find(|row| row["id"] == id);
        row.filter(|row| row["pid"] == pid).ok_or_else(|| {
            format!(
                "process {pid} is saved as {id}, and not listed: {}",
                self.logged()
            )
        })
    }

    /// Waits until the daemon reports the crash of a process as saved, and returns the bundle's
    /// name.
    pub fn saved(&self, pid: u32) -> Result<String, String> {
        let begin = format!("a crash ended process {pid}: ");
        self.until(
            &format!("does not say that it has saved process {pid}"),
            |daemon| {
                let log = daemon.logged();
                // An incomplete line is ignored.
                let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
                let id = whole
                    .lines()
                    .find_map(|line| Some(line.split_once(&begin)?.1.to_owned()));
                Ok(id)
            },
        )
    }

    /// Repeats a query until it has a result.
    fn until<T>(
        &self,
        otherwise: &str,
        mut ask: impl FnMut(&Self) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(answer) = ask(self)? {
                return Ok(answer);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the daemon {otherwise}: {}", self.logged()))
    }

    pub fn signal(&self, signal: Signal) -> Outcome {
        kill(Pid::from_raw(self.process.id() as i32), signal)
            .map_err(|error| format!("cannot send the daemon {signal}: {error}"))
    }

    /// Stops the daemon, as systemd does.
    pub fn end(&mut self) -> Outcome {
        self.signal(Signal::SIGTERM)?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match self.process.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the daemon ended with {status}: {}", self.logged())),
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(format!("cannot wait for the daemon: {error}")),
            }
        }
        Err(format!("the daemon does not end: {}", self.logged()))
    }

    /// Returns the log since its start.
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.process.try_wait().ok().flatten().is_none() {
            self.process.kill().ok();
            self.process.wait().ok();
        }
    }
}

/// Returns the list itself, or the list in an object.
fn rows(list: &Value) -> &[Value] {
    list.as_array()
        .or_else(|| list["crashes"].as_array())
        .map_or(&[], Vec::as_slice)
}

/// Returns the output of a successful command.
pub fn said(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} failed: {errors}"))
}
