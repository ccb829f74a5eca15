//! Requests of crash handlers and recorders.

use super::Shared;
use crate::clock;
use crate::crash::{Job, Waiting};
use crate::wire::{Connection, Listener, Reply, Request};
use backtrail_pt::Pid;
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(1);

/// How long the probe's event may take that came before the process was gone.
const SIGHTING: Duration = Duration::from_millis(500);

/// The processes that recorders mind, by the connection of each.
#[derive(Debug, Default)]
pub(super) struct Minded(Mutex<HashMap<u32, Arc<Connection>>>);

impl Minded {
    /// Whether a recorder minds the process, and still lives.
    pub(super) fn has(&self, pid: u32) -> bool {
        let mut minded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        minded.retain(|_, recorder| recorder.is_open());
        minded.contains_key(&pid)
    }

    fn add(&self, pid: u32, recorder: Connection) {
        let mut minded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        minded.retain(|_, recorder| recorder.is_open());
        minded.insert(pid, Arc::new(recorder));
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Takes requests until the listener is shut down.
pub(super) fn run(shared: &Shared, listener: &Listener, jobs: &SyncSender<Job>) {
    while let Ok(connection) = listener.accept() {
        if let Err(error) = take(shared, connection, jobs) {
            tracing::warn!("a request was refused: {error}");
        }
    }
}

fn take(shared: &Shared, connection: Connection, jobs: &SyncSender<Job>) -> io::Result<()> {
    connection.set_timeout(REQUEST)?;
    let (request, file) = connection.receive::<Request>()?;
    let received = clock::monotonic();
    match (request, file) {
        (Request::Crash(crash), Some(core)) => {
            if connection.peer()? != 0 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let pid = crash.pid;
            let job = Job {
                crash,
                core,
                waiting: Waiting::Handler(connection),
                received,
            };
            // A queue that is full lets the process go: the handler sees its connection end.
            jobs.try_send(job)
                .map_err(|_| io::Error::other(format!("too many processes are kept; {pid} is let go")))
        }
        (Request::Crash(_), None) => Err(io::ErrorKind::InvalidData.into()),
        (Request::Mind { pid }, _) => {
            connection.send(&Reply::default(), None)?;
            shared.minded.add(pid, connection);
            Ok(())
        }
        (Request::Crashed { pid }, _) => {
            // Without a probe there is nothing to wait for.
            let patience = shared.saver.probe.as_ref().map_or(Duration::ZERO, |_| SIGHTING);
            let sighting = shared.saver.sightings.take(Pid(pid), patience);
            let reply = Reply {
                crash_to_reader: sighting.as_ref().map(|it| it.read_at.saturating_sub(it.seen.at)),
                probe: sighting.and_then(|_| shared.saver.probe.clone()),
                ..Reply::default()
            };
            connection.send(&reply, None)
        }
    }
}
