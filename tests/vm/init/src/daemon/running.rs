//! A running daemon: started as systemd does it, asked by its own commands, ended.

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

/// What is in its configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where its log and all the rest is.
    pub place: PathBuf,
    pub spool: PathBuf,
    /// `trace.source`.
    pub source: &'static str,
    /// Bytes, if the spool is to have a limit of its own.
    pub spool_limit: Option<u64>,
}

impl Setup {
    /// With Intel PT, and a spool of its own.
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
    /// Starts it, and waits until it says that it is ready.
    pub fn start(setup: &Setup) -> Result<Self, String> {
        let place = &setup.place;
        let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", place.display());
        let config = setup.write()?;
        let log = place.join("log");
        // As systemd asks for it (sd_notify(3)).
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

    /// Has it read its configuration again.
    pub fn reload(&mut self, setup: &Setup) -> Outcome {
        setup.write()?;
        self.signal(Signal::SIGHUP)?;
        self.until("has not read its configuration again", |daemon| {
            Ok(daemon.logged().contains("configuration reloaded").then_some(()))
        })
    }

    /// What `crashes list` says of each crash, in its order.
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

    /// Waits until the crash of a process is saved, and gives its line of the list.
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

    /// Waits until it says that the crash of a process is saved; the bundle's name.
    pub fn saved(&self, pid: u32) -> Result<String, String> {
        let begin = format!("a crash ended process {pid}: ");
        self.until(
            &format!("does not say that it has saved process {pid}"),
            |daemon| {
                let log = daemon.logged();
                // A line that is not whole yet is none.
                let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
                let id = whole
                    .lines()
                    .find_map(|line| Some(line.split_once(&begin)?.1.to_owned()));
                Ok(id)
            },
        )
    }

    /// Asks until there is an answer.
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

    /// Ends it, as systemd does.
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

    /// What it has logged since it was started.
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

/// The list itself, or the list in an object.
fn rows(list: &Value) -> &[Value] {
    list.as_array()
        .or_else(|| list["crashes"].as_array())
        .map_or(&[], Vec::as_slice)
}

/// What a command that succeeds prints.
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
