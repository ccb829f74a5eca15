//! The daemon's side of the sender: starts it, restarts it, and takes its reports.

use super::message::{SenderInput, SenderReport, SenderTask};
use super::running::{self, RunningProgram};
use super::{COMMAND, DIRECTORY};
use crate::config::HubConfig;
use crate::error::{Error, Result};
use crate::restart::{Ended, PERIOD, keep_running};
use crate::wire::Connection;
use crate::worker::confine::{FIRST_IDENTITY, IDENTITIES};
use nix::unistd::{Gid, Uid, chown};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The user and group id of the sender, after those of workers.
const IDENTITY: u32 = FIRST_IDENTITY + IDENTITIES;
/// The group's permissions for reading and searching.
const GROUP_READS: u32 = 0o050;
/// The interval between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(300);
/// How long a sender may take to end.
const END: Duration = Duration::from_secs(2);
/// The longest token file in bytes.
const MAX_TOKEN: u64 = 4096;
/// The variables that programs with a connection inherit: proxies and certificates.
pub(crate) const VARIABLES: [&str; 8] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Returns the current configuration.
type CurrentConfig = Box<dyn Fn() -> HubConfig + Send>;
/// Marks a crash as sent.
type MarkSent = Box<dyn Fn(&str) -> Result<()> + Send>;

/// The thread that keeps a sender running while the configuration names a hub.
#[derive(Debug)]
pub struct SenderSupervisor {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A running sender.
struct Sender {
    child: Child,
    connection: Connection,
    hub: HubConfig,
    started: Instant,
}

/// The state of the thread.
struct Supervision {
    spool: PathBuf,
    config: CurrentConfig,
    mark_sent: MarkSent,
    stopping: Arc<AtomicBool>,
}

impl SenderSupervisor {
    /// Starts the thread. `config` returns the configuration, and `mark_sent` marks a crash.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(spool: &Path, config: CurrentConfig, mark_sent: MarkSent) -> Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let supervision = Supervision {
            spool: spool.to_owned(),
            config,
            mark_sent,
            stopping: Arc::clone(&stopping),
        };
        let thread = std::thread::Builder::new()
            .name("sender".to_owned())
            .spawn(move || supervision.run())
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            stopping,
            thread: Some(thread),
        })
    }

    /// Ends the sender and the thread.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Supervision {
    fn run(&self) {
        let words = ("the sender", "crashes are not sent");
        keep_running(&self.stopping, words, || {
            let hub = (self.config)();
            match hub.url.is_some() {
                true => self.watch(start(&self.spool, &hub)?),
                false => Ok(Ended::NotWanted),
            }
        });
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Takes the sender's reports until it ends.
    fn watch(&self, sender: Sender) -> Result<Ended> {
        let talk = || Error::system("talk to the sender");
        sender.connection.set_timeout(PERIOD).map_err(talk())?;
        let mut programs: Option<Receiver<Vec<RunningProgram>>> = None;
        let mut next_heartbeat = sender.started;
        loop {
            match sender.connection.receive_alone::<SenderReport>() {
                Ok(SenderReport::Sent { id }) => {
                    if let Err(error) = (self.mark_sent)(&id) {
                        tracing::debug!("a sent crash is not marked: {error}");
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => {
                        sender.end();
                        return Ok(Ended::ByItself);
                    }
                },
            }
            if self.is_stopping() || (self.config)() != sender.hub {
                sender.end();
                return Ok(Ended::ByDaemon);
            }
            // A file system that does not answer blocks only the thread that opens its files.
            if programs.is_none() && Instant::now() >= next_heartbeat {
                next_heartbeat = Instant::now() + HEARTBEAT;
                programs = Some(find_programs());
            }
            match programs.as_ref().map(Receiver::try_recv) {
                Some(Ok(found)) => {
                    programs = None;
                    if sender.give_programs(found).is_err() {
                        sender.end();
                        return Ok(Ended::ByItself);
                    }
                }
                Some(Err(TryRecvError::Disconnected)) => programs = None,
                Some(Err(TryRecvError::Empty)) | None => {}
            }
        }
    }
}

/// Finds the running programs on a thread of its own.
fn find_programs() -> Receiver<Vec<RunningProgram>> {
    let (give, receiver) = channel();
    let find = move || {
        let _ = give.send(running::programs(Path::new("/proc")));
    };
    let _ = std::thread::Builder::new()
        .name("programs".to_owned())
        .spawn(find);
    receiver
}

impl Sender {
    fn give_programs(&self, programs: Vec<RunningProgram>) -> io::Result<()> {
        for program in programs {
            let RunningProgram {
                executable,
                service,
                file,
            } = program;
            let running = SenderInput::Running { executable, service };
            self.connection.send(&running, Some(file.as_fd()))?;
        }
        self.connection.send(&SenderInput::RunningEnd, None)
    }

    /// Ends the sender: it notices the closed connection, or is killed.
    fn end(self) {
        let Self {
            mut child,
            connection,
            ..
        } = self;
        drop(connection);
        let deadline = Instant::now() + END;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Starts a sender, and gives it its task.
fn start(spool: &Path, hub: &HubConfig) -> Result<Sender> {
    let task = SenderTask {
        hub: hub.clone(),
        token: hub.token_file.as_deref().map(read_token).transpose()?,
        spool: spool.to_owned(),
    };
    let directory = spool.join(DIRECTORY);
    let made = fs::DirBuilder::new().mode(0o700).create(&directory);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::file("create", &directory)(error));
        }
        _ => {}
    }
    let (ours, theirs) = Connection::pair().map_err(Error::system("start the sender"))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(COMMAND)
        .env_clear()
        .envs(
            VARIABLES
                .iter()
                .filter_map(|name| Some((*name, std::env::var_os(name)?))),
        )
        .env("TMPDIR", &directory)
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        // Its log goes where the daemon's log goes.
        .stderr(Stdio::inherit())
        .process_group(0);
    if Uid::effective().is_root() {
        let group = readable_group(spool)?;
        let owner = (Uid::from_raw(IDENTITY), Gid::from_raw(IDENTITY));
        chown(&directory, Some(owner.0), Some(owner.1))
            .map_err(|error| Error::file("change the owner of", &directory)(error.into()))?;
        // Without other groups, and without capabilities.
        command.uid(IDENTITY).gid(group);
    }
    let child = command.spawn().map_err(Error::system("start the sender"))?;
    let sender = Sender {
        child,
        connection: ours,
        hub: hub.clone(),
        started: Instant::now(),
    };
    let given = sender.connection.send(&SenderInput::Task(task), None);
    if let Err(error) = given {
        sender.end();
        return Err(Error::system("talk to the sender")(error));
    }
    Ok(sender)
}

/// Returns the group that can read the spool. If there is none, the sender's own group gets it.
fn readable_group(spool: &Path) -> Result<u32> {
    let changed = || Error::file("change the group of", spool);
    let found = fs::metadata(spool).map_err(Error::file("look at", spool))?;
    if found.mode() & GROUP_READS == GROUP_READS {
        return Ok(found.gid());
    }
    chown(spool, None, Some(Gid::from_raw(IDENTITY))).map_err(|error| changed()(error.into()))?;
    let mode = found.mode() & 0o7777 | GROUP_READS;
    fs::set_permissions(spool, fs::Permissions::from_mode(mode)).map_err(changed())?;
    Ok(IDENTITY)
}

/// Reads the file with the token.
fn read_token(file: &Path) -> Result<String> {
    let mut text = String::new();
    let read = fs::File::open(file).and_then(|opened| opened.take(MAX_TOKEN).read_to_string(&mut text));
    read.map_err(Error::file("read", file))?;
    Ok(text.trim().to_owned())
}

/// The sender's end of the connection.
#[derive(Debug)]
pub struct SenderInbox(Connection);

impl SenderInbox {
    /// Takes the connection from standard input.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn of_standard_input() -> Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned();
        Ok(Self(Connection::of(
            input.map_err(Error::system("talk to the collector"))?,
        )))
    }

    /// Waits for the next message, and its file. `None`: the daemon has ended.
    ///
    /// # Errors
    /// When the message is malformed.
    pub fn receive(&self) -> Result<Option<(SenderInput, Option<OwnedFd>)>> {
        loop {
            match self.0.receive::<SenderInput>() {
                Ok(received) => return Ok(Some(received)),
                Err(error) => match error.kind() {
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => return Ok(None),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(Error::system("talk to the collector")(error)),
                },
            }
        }
    }

    /// Reports to the daemon.
    ///
    /// # Errors
    /// When the daemon has ended.
    pub fn report(&self, report: &SenderReport) -> Result<()> {
        self.0
            .send(report, None)
            .map_err(Error::system("talk to the collector"))
    }
}
