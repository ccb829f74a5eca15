//! The profiler of the host, which the daemon keeps running (`backtrail profile agent`).
//!
//! The agent samples all processes and sends their profiles to the hub. It is a process of its own,
//! because the daemon speaks no HTTP. It has the daemon's capabilities, and ends when the daemon
//! ends: its standard input is a pipe that the daemon holds.

use crate::config::{HubConfig, ProfileConfig};
use crate::error::{Error, Result};
use crate::restart::{Ended, PERIOD, keep_running};
use crate::sender::VARIABLES;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The directory in the spool of profiles that wait for the hub.
pub const DIRECTORY: &str = ".profiles";
/// The option that ends an agent with its standard input.
const ATTACHED: &str = "--attached";
/// How long an agent may take to end. Profiles that it has not sent stay in the spool.
const END: Duration = Duration::from_secs(3);

/// The settings of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSettings {
    /// The hub.
    pub hub: HubConfig,
    /// The profiler.
    pub profile: ProfileConfig,
}

/// Returns the current settings.
type CurrentSettings = Box<dyn Fn() -> AgentSettings + Send>;

/// The thread that keeps an agent running.
#[derive(Debug)]
pub struct AgentSupervisor {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AgentSupervisor {
    /// Starts the thread. `settings` returns the current ones.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(spool: &Path, settings: CurrentSettings) -> Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let supervision = Supervision {
            directory: spool.join(DIRECTORY),
            settings,
            stopping: Arc::clone(&stopping),
        };
        let thread = std::thread::Builder::new()
            .name("profiler".to_owned())
            .spawn(move || supervision.run())
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            stopping,
            thread: Some(thread),
        })
    }

    /// Ends the agent and the thread.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Supervision {
    directory: PathBuf,
    settings: CurrentSettings,
    stopping: Arc<AtomicBool>,
}

impl Supervision {
    fn run(&self) {
        let words = ("the profiler", "no profiles are made");
        keep_running(&self.stopping, words, || {
            let settings = (self.settings)();
            match arguments(&settings, &self.directory) {
                Some(arguments) => Ok(self.watch(start(&self.directory, &arguments)?, &settings)),
                None => Ok(Ended::NotWanted),
            }
        });
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Waits until an agent ends, or is to end.
    fn watch(&self, mut agent: Child, settings: &AgentSettings) -> Ended {
        loop {
            if !matches!(agent.try_wait(), Ok(None)) {
                return Ended::ByItself;
            }
            if self.is_stopping() || (self.settings)() != *settings {
                end(agent);
                return Ended::ByDaemon;
            }
            std::thread::sleep(PERIOD);
        }
    }
}

/// Returns the arguments of an agent; `None`: none is to run.
fn arguments(settings: &AgentSettings, directory: &Path) -> Option<Vec<OsString>> {
    let AgentSettings { hub, profile } = settings;
    let url = hub.url.as_ref().filter(|_| profile.enabled)?;
    let mut arguments: Vec<OsString> = ["profile", "agent", ATTACHED, "--hub", url]
        .map(OsString::from)
        .into();
    let mut add = |option: &str, value: &OsStr| arguments.extend([OsString::from(option), value.to_owned()]);
    add("--spool", directory.as_os_str());
    add("--max-size", profile.spool_limit.0.to_string().as_ref());
    let interval = format!("{}ms", profile.interval.0.as_millis());
    add("--interval", interval.as_ref());
    add("--freq", profile.frequency.to_string().as_ref());
    add("--cpu-budget", profile.cpu_budget.to_string().as_ref());
    if let Some(file) = &hub.token_file {
        add("--token-file", file.as_os_str());
    }
    let names = [
        ("--build", &hub.build),
        ("--service", &hub.service),
        ("--region", &profile.region),
    ];
    for (option, name) in names {
        if let Some(name) = name {
            // A name may begin with a dash.
            let mut joined = OsString::from(option);
            joined.push("=");
            joined.push(name);
            arguments.push(joined);
        }
    }
    if hub.insecure_http {
        arguments.push("--insecure-http".into());
    }
    Some(arguments)
}

/// Starts an agent.
fn start(directory: &Path, arguments: &[OsString]) -> Result<Child> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::file("create", directory)(error));
        }
        _ => {}
    }
    Command::new("/proc/self/exe")
        .args(arguments)
        .env_clear()
        .envs(
            VARIABLES
                .iter()
                .filter_map(|name| Some((*name, std::env::var_os(name)?))),
        )
        .env("TMPDIR", directory)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Its log goes where the daemon's log goes.
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(Error::system("start the profiler"))
}

/// Ends an agent: it notices the end of its standard input, or is killed.
fn end(mut agent: Child) {
    drop(agent.stdin.take());
    let deadline = Instant::now() + END;
    while matches!(agent.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let _ = agent.kill();
            let _ = agent.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> AgentSettings {
        let config = crate::config::Config::parse(text, Path::new("c.toml")).unwrap();
        AgentSettings {
            hub: config.hub,
            profile: config.profile,
        }
    }

    fn text(settings: &AgentSettings) -> Option<String> {
        let arguments = arguments(settings, Path::new("/s/.profiles"))?;
        let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap()).collect();
        Some(words.join(" "))
    }

    #[test]
    fn agent_runs_only_if_it_is_enabled() {
        assert_eq!(text(&settings("")), None);
        assert_eq!(text(&settings("[hub]\nurl = \"https://h\"\n")), None);
    }

    #[test]
    fn agent_gets_the_settings_of_the_hub_and_the_profiler() {
        let settings = settings(
            "[hub]\nurl = \"https://h\"\ntoken_file = \"/t\"\nservice = \"-x\"\n\
             [profile]\nenabled = true\nfrequency = 99\ninterval = \"2s\"\nregion = \"north\"\n",
        );
        assert_eq!(
            text(&settings).unwrap(),
            "profile agent --attached --hub https://h --spool /s/.profiles --max-size 1073741824 \
             --interval 2000ms --freq 99 --cpu-budget 1 --token-file /t --service=-x --region=north"
        );
    }
}
