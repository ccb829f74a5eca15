//! The recorder's client of the collector. It claims processes, and saves their crashes into the
//! same spool.
//!
//! The daemon does not save a claimed process while the recorder's connection is open. If the
//! recorder is killed or cannot save a crash, the daemon saves it. A recorder without write access
//! to the spool makes its bundles in a staging directory and hands them to the daemon. It may run
//! as another user, or see the spool read-only.

use crate::clock;
use crate::config::{Config, CrashConfig};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::spool::{self, BundleDraft, Spool};
use crate::users::User;
use crate::wire::{BUNDLE_CHUNK, Connection, Reply, Request};
use backtrail_bundle::manifest::Manifest;
use backtrail_bundle::{CancelToken, Overwrite, Writer};
use backtrail_process::{RawTid, status};
use nix::unistd::{AccessFlags, access};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// How long the daemon may take to answer. The process waits for this.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the daemon may take to check a bundle and write it to disk.
const SAVE_TIMEOUT: Duration = Duration::from_secs(180);
/// Candidates for the staging directory. The first writable one is used. Memory comes last, because
/// a bundle is large.
const STAGING: [&str; 3] = ["/var/tmp", "/tmp", "/dev/shm"];

/// Claims processes, and saves their crashes.
#[derive(Debug)]
pub struct RecorderClient {
    runtime: Runtime,
    spool: Spool,
    crash: CrashConfig,
    /// The staging directory for bundles that the daemon takes. `None`: bundles are written to the
    /// spool.
    staging: Option<TempDir>,
    /// The connection for each claim. `None`: the daemon did not answer.
    claims: HashMap<u32, Option<Connection>>,
    /// The users of processes whose bundles are being written.
    users: HashMap<u32, u32>,
}

impl RecorderClient {
    /// Creates a client without claims, and the spool if it is missing.
    ///
    /// # Errors
    /// When neither the spool nor any temporary directory is writable.
    pub fn new(config: &Config) -> Result<Self> {
        let made = spool::make_directory(&config.spool);
        let ours = made.is_ok() && access(&config.spool, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
        Ok(Self {
            staging: if ours { None } else { Some(staging(&config.spool)?) },
            runtime: Runtime::new(&config.runtime),
            spool: Spool::open(&config.spool, config.spool_limit, config.spool_free),
            crash: config.crash.clone(),
            claims: HashMap::new(),
            users: HashMap::new(),
        })
    }

    /// Returns the directory of the bundles.
    #[must_use]
    pub fn spool(&self) -> &Path {
        self.spool.directory()
    }

    /// Returns whether crashes are saved while no daemon runs.
    #[must_use]
    pub fn works_without_daemon(&self) -> bool {
        self.staging.is_none()
    }

    /// Returns the crash settings of the configuration.
    #[must_use]
    pub fn crash(&self) -> &CrashConfig {
        &self.crash
    }

    /// Claims a process at the daemon.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or a lack of permission for the daemon's socket. The claim stays, and
    /// [`Self::refresh`] tries again.
    pub fn claim(&mut self, pid: u32) -> Result<()> {
        let claimed = self.send_claim(pid);
        let (connection, result) = match claimed {
            Ok(connection) => (Some(connection), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.claims.insert(pid, connection);
        result
    }

    fn send_claim(&self, pid: u32) -> Result<Connection> {
        let connection = self.connect()?;
        self.request(&connection, &Request::Claim { pid })?;
        Ok(connection)
    }

    /// Sends a request and returns the daemon's answer, unless it refuses.
    fn request(&self, connection: &Connection, request: &Request) -> Result<Reply> {
        self.receive_reply(connection.send(request, None), connection)
    }

    fn receive_reply(&self, sent: io::Result<()>, connection: &Connection) -> Result<Reply> {
        // A daemon that refuses a request does not read the rest of it.
        let answer = connection.receive::<Reply>();
        let answer = if answer.is_ok() { answer } else { sent.and(answer) };
        let (reply, _) = answer.map_err(Error::file("talk to", &self.runtime.recorder_socket()))?;
        match reply.refused {
            Some(why) => Err(Error::Unable(format!("the collector refuses: {why}"))),
            None => Ok(reply),
        }
    }

    fn connect(&self) -> Result<Connection> {
        let path = self.runtime.recorder_socket();
        Connection::open_within(&path, TIMEOUT).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::file("use", &path)(error),
            _ => Error::NotRunning(path.clone()),
        })
    }

    /// Ends the claim on a process.
    pub fn release(&mut self, pid: u32) {
        self.claims.remove(&pid);
        self.users.remove(&pid);
    }

    /// Repeats the claims that the daemon does not have, for example after a restart. Returns
    /// whether the daemon has all claims now.
    pub fn refresh(&mut self) -> bool {
        let lost: Vec<u32> = self
            .claims
            .iter()
            .filter(|(_, connection)| !connection.as_ref().is_some_and(Connection::is_open))
            .map(|(pid, _)| *pid)
            .collect();
        // If the daemon does not answer the first claim, it will not answer the others.
        lost.into_iter().all(|pid| self.claim(pid).is_ok())
    }

    /// Starts a bundle for a claimed process that still exists, by its short name. The bundle is in
    /// the spool, within its limits, or in the staging directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(&mut self, name: &str, pid: u32) -> Result<BundleDraft> {
        let [_, user, _] = status::parent_and_owner(pid as RawTid);
        if Path::new(&format!("/proc/{pid}")).exists() {
            self.users.insert(pid, user);
        }
        let Some(staging) = &self.staging else {
            self.spool.make_room()?;
            return self.spool.begin(name, pid);
        };
        let path = staging.path().join(pid.to_string());
        let _ = fs::remove_dir_all(&path);
        let writer = Writer::create(&path, Overwrite::Never)?;
        // Only a running process can be claimed.
        self.refresh();
        let id = name.to_owned();
        Ok(BundleDraft { id, path, writer })
    }

    /// Returns the probe's data about a crash. Call it soon after the signal was delivered.
    fn query_probe(&self, pid: u32, executable: Option<String>) -> Result<Reply> {
        self.request(&self.connect()?, &Request::Crashed { pid, executable })
    }

    /// Finishes the bundle of a claimed process that has ended. [`Self::begin`] returned its `id`.
    /// This adds the probe's data, writes the bundle to disk, and removes older bundles beyond the
    /// limits. Returns the name in the spool.
    ///
    /// # Errors
    /// When the bundle cannot be written, or the daemon refuses it or reports a rate limit. The
    /// bundle is removed then.
    pub fn finish(&self, id: &str, writer: Writer, mut manifest: Manifest) -> Result<String> {
        let pid = manifest.meta.crash.map(|crash| crash.pid.0);
        let collected = manifest.meta.collected.get_or_insert_default();
        let executable = manifest.meta.program.clone();
        if let Some(Ok(reply)) = pid.map(|pid| self.query_probe(pid, executable)) {
            if reply.limited {
                let why = "its executable has exceeded the rate limit (`limit` of the collector's configuration): this crash is counted, and not saved";
                return Err(Error::Unable(why.to_owned()));
            }
            collected.probe = reply.probe;
            collected.crash_to_reader = reply.crash_to_reader;
        }
        collected.time.get_or_insert_with(clock::wall);
        collected.user = pid.and_then(|pid| self.users.get(&pid).copied());
        if let (Some(staging), Some(pid)) = (&self.staging, pid) {
            writer.finish(&manifest)?;
            return self.deposit(staging.path(), id, pid);
        }
        writer.finish_durably(&manifest)?;
        let path = self.spool.directory().join(id);
        // The daemon may be another user, and must be able to remove the bundle. Other users may
        // have to read it.
        if let Err(error) = self.spool.hand_over(&path, User::ROOT) {
            tracing::warn!("{error}");
        }
        self.spool.make_room()?;
        Ok(id.to_owned())
    }

    /// Hands a bundle from the staging directory to the daemon.
    fn deposit(&self, staging: &Path, name: &str, pid: u32) -> Result<String> {
        let (bundle, packed) = (staging.join(pid.to_string()), staging.join(format!("{pid}.btz")));
        let given = backtrail_bundle::pack(&bundle, &packed, &CancelToken::default())
            .map_err(Error::from)
            .and_then(|()| self.give(&packed, name, pid));
        let _ = fs::remove_file(&packed);
        let _ = fs::remove_dir_all(&bundle);
        given
    }

    fn give(&self, packed: &Path, name: &str, pid: u32) -> Result<String> {
        let failed = || Error::file("read", packed);
        let mut file = fs::File::open(packed).map_err(failed())?;
        let size = file.metadata().map_err(failed())?.len();
        let name = name.to_owned();
        let connection = self.connect()?;
        self.request(&connection, &Request::Deposit { pid, name, size })?;
        connection
            .set_timeout(SAVE_TIMEOUT)
            .map_err(Error::file("talk to", &self.runtime.recorder_socket()))?;
        let mut piece = vec![0; BUNDLE_CHUNK];
        let mut send = || loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                got => connection.send_chunk(piece.get(..got).unwrap_or_default())?,
            }
        };
        let reply = self.receive_reply(send(), &connection)?;
        reply
            .id
            .ok_or_else(|| Error::Unable("the collector did not return the name of the bundle".to_owned()))
    }
}

/// Creates a staging directory.
fn staging(spool: &Path) -> Result<TempDir> {
    let asked = std::env::var_os("TMPDIR").map(PathBuf::from);
    asked
        .into_iter()
        .chain(STAGING.map(PathBuf::from))
        .find_map(|folder| tempfile::Builder::new().prefix("backtrail-record-").tempdir_in(folder).ok())
        .ok_or_else(|| {
            Error::Unable(format!(
                "neither {} nor a temporary directory is writable; let the service write to one (PrivateTmp=yes)",
                spool.display()
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Listener;

    fn config(folder: &Path) -> Config {
        Config {
            spool: folder.join("spool"),
            runtime: folder.to_owned(),
            ..Config::default()
        }
    }

    #[test]
    fn refresh_repeats_claims_to_a_new_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let mut client = RecorderClient::new(&config(folder.path())).unwrap();
        assert!(matches!(client.claim(7), Err(Error::NotRunning(_))));
        assert!(!client.refresh());
        let listener = Listener::bind(&Runtime::new(folder.path()).recorder_socket()).unwrap();
        let daemon = std::thread::spawn(move || {
            let connection = listener.accept().unwrap();
            let (request, _) = connection.receive::<Request>().unwrap();
            connection.send(&Reply::default(), None).unwrap();
            (request, connection)
        });
        assert!(client.refresh());
        let (request, connection) = daemon.join().unwrap();
        assert_eq!(request, Request::Claim { pid: 7 });
        assert!(connection.is_open());
        client.release(7);
        assert!(!connection.is_open(), "it is the daemon's again");
    }

    #[test]
    fn bundle_without_daemon_has_no_probe_data() {
        let folder = tempfile::tempdir().unwrap();
        let mut client = RecorderClient::new(&config(folder.path())).unwrap();
        let draft = client.begin("service", 7).unwrap();
        let manifest = Manifest {
            cpu: backtrail_process::machine::cpu_model(),
            timing: Default::default(),
            tsc: None,
            filters: Vec::new(),
            processes: Vec::new(),
            cpus: Vec::new(),
            core: None,
            meta: Default::default(),
        };
        client.finish(&draft.id, draft.writer, manifest).unwrap();
        let stored = client.spool.find("latest").unwrap();
        assert_eq!(stored.id, draft.id);
        let collected = backtrail_bundle::Bundle::open(&stored.path).unwrap();
        let collected = collected.manifest().meta.collected.clone().unwrap();
        assert_eq!((collected.probe, collected.crash_to_reader), (None, None));
    }
}
