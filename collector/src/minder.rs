//! The recorder's side of the collector: it minds processes itself, and saves their crashes into the same spool.
//!
//! The daemon leaves a process to its recorder as long as the recorder's connection is open. So a recorder that is
//! killed, or that cannot save a crash, leaves it to the daemon.

use crate::clock;
use crate::config::{Config, Crash};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::spool::{Draft, Spool};
use crate::wire::{Connection, Reply, Request};
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::Manifest;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;
use std::time::Duration;

/// How long the daemon may take to answer: the process waits for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// Minds processes.
#[derive(Debug)]
pub struct Minder {
    runtime: Runtime,
    spool: Spool,
    crash: Crash,
    /// A connection for each process; `None`: the daemon did not answer.
    minded: HashMap<u32, Option<Connection>>,
}

impl Minder {
    /// Minds nobody yet. The spool is made where there is none.
    ///
    /// # Errors
    /// When the spool cannot be made.
    pub fn new(config: &Config) -> Result<Self> {
        fs::create_dir_all(&config.spool).map_err(Error::file("create", &config.spool))?;
        Ok(Self {
            runtime: Runtime::new(&config.runtime),
            spool: Spool::open(&config.spool, config.spool_limit, config.spool_free),
            crash: config.crash.clone(),
            minded: HashMap::new(),
        })
    }

    /// Where crashes go.
    #[must_use]
    pub fn spool(&self) -> &Path {
        self.spool.directory()
    }

    /// What the configuration says of crashes.
    #[must_use]
    pub fn crash(&self) -> &Crash {
        &self.crash
    }

    /// Tells the daemon that a process is minded.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or the daemon's socket is not ours to use. The process counts as minded all the same:
    /// [`Self::refresh`] tries again.
    pub fn mind(&mut self, pid: u32) -> Result<()> {
        let told = self.tell(pid);
        let (connection, result) = match told {
            Ok(connection) => (Some(connection), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.minded.insert(pid, connection);
        result
    }

    fn tell(&self, pid: u32) -> Result<Connection> {
        let connection = self.connect()?;
        let told = connection
            .send(&Request::Mind { pid }, None)
            .and_then(|()| connection.receive::<Reply>());
        told.map_err(Error::file("talk to", &self.runtime.crash_socket()))?;
        Ok(connection)
    }

    fn connect(&self) -> Result<Connection> {
        let path = self.runtime.crash_socket();
        Connection::open_within(&path, PATIENCE).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::file("use", &path)(error),
            _ => Error::NotRunning(path.clone()),
        })
    }

    /// Minds the process no more.
    pub fn forget(&mut self, pid: u32) {
        self.minded.remove(&pid);
    }

    /// Tells a daemon that has been started, or started anew, of all that is minded; whether there is one now that
    /// knows of all.
    pub fn refresh(&mut self) -> bool {
        let lost: Vec<u32> = self
            .minded
            .iter()
            .filter(|(_, connection)| !connection.as_ref().is_some_and(Connection::is_open))
            .map(|(pid, _)| *pid)
            .collect();
        // One that does not answer the first does not answer the others.
        lost.into_iter().all(|pid| self.mind(pid).is_ok())
    }

    /// Begins a bundle in the spool for a process of this short name, within the spool's limits.
    ///
    /// # Errors
    /// When the spool cannot be written.
    pub fn begin(&self, name: &str, pid: u32) -> Result<Draft> {
        self.spool.make_room()?;
        self.spool.begin(name, pid)
    }

    /// What the daemon's probe saw of a crash. To be asked once the signal was delivered, and before long.
    fn sighting(&self, pid: u32) -> Result<Reply> {
        let connection = self.connect()?;
        let told = connection
            .send(&Request::Crashed { pid }, None)
            .and_then(|()| connection.receive::<Reply>());
        let (reply, _) = told.map_err(Error::file("talk to", &self.runtime.crash_socket()))?;
        Ok(reply)
    }

    /// Finishes the bundle `id` of a minded process that is gone: what the daemon's probe saw is added, all of it is on
    /// the disk at the end, and older bundles go where the spool's limits want it.
    ///
    /// # Errors
    /// When it cannot be written; nothing is left of it then.
    pub fn finish(&self, id: &str, writer: Writer, mut manifest: Manifest) -> Result<()> {
        let pid = manifest.meta.crash.map(|crash| crash.pid.0);
        let collected = manifest.meta.collected.get_or_insert_default();
        if let Some(Ok(reply)) = pid.map(|pid| self.sighting(pid)) {
            collected.probe = reply.probe;
            collected.crash_to_reader = reply.crash_to_reader;
        }
        collected.time.get_or_insert_with(clock::wall);
        writer.finish_durably(&manifest)?;
        let path = self.spool.directory().join(id);
        // The daemon may be another user, and has to remove it one day.
        if let Ok(spool) = fs::metadata(self.spool.directory()) {
            let _ = give(&path, spool.uid(), spool.gid());
        }
        self.spool.make_room()?;
        Ok(())
    }
}

/// Makes somebody the owner of a directory and all that is in it.
fn give(path: &Path, user: u32, group: u32) -> io::Result<()> {
    let there = fs::symlink_metadata(path)?;
    if (there.uid(), there.gid()) != (user, group) {
        lchown(path, Some(user), Some(group))?;
    }
    if there.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user, group)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Listener;

    fn config(place: &Path) -> Config {
        Config {
            spool: place.join("spool"),
            runtime: place.to_owned(),
            ..Config::default()
        }
    }

    #[test]
    fn a_daemon_that_comes_later_is_told() {
        let place = tempfile::tempdir().unwrap();
        let mut minder = Minder::new(&config(place.path())).unwrap();
        assert!(matches!(minder.mind(7), Err(Error::NotRunning(_))));
        assert!(!minder.refresh());
        let listener = Listener::bind(&Runtime::new(place.path()).crash_socket()).unwrap();
        let daemon = std::thread::spawn(move || {
            let connection = listener.accept().unwrap();
            let (request, _) = connection.receive::<Request>().unwrap();
            connection.send(&Reply::default(), None).unwrap();
            (request, connection)
        });
        assert!(minder.refresh());
        let (request, connection) = daemon.join().unwrap();
        assert_eq!(request, Request::Mind { pid: 7 });
        assert!(connection.is_open());
        minder.forget(7);
        assert!(!connection.is_open(), "it is the daemon's again");
    }

    #[test]
    fn a_bundle_without_a_daemon_says_that_nothing_was_seen() {
        let place = tempfile::tempdir().unwrap();
        let minder = Minder::new(&config(place.path())).unwrap();
        let draft = minder.begin("service", 7).unwrap();
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
        minder.finish(&draft.id, draft.writer, manifest).unwrap();
        let stored = minder.spool.find("latest").unwrap();
        assert_eq!(stored.id, draft.id);
        let collected = backtrail_bundle::Bundle::open(&stored.path).unwrap();
        let collected = collected.manifest().meta.collected.clone().unwrap();
        assert_eq!((collected.probe, collected.crash_to_reader), (None, None));
    }
}
