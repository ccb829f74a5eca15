//! Requests of crash handlers. Only root may connect here: nobody else can make a crash wait.

use crate::clock;
use crate::crash::{Job, Waiting};
use crate::wire::{Connection, Listener, Request};
use std::io;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// How long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(1);

/// Takes requests until the listener is shut down.
pub(super) fn run(listener: &Listener, jobs: &SyncSender<Job>) {
    while let Ok(connection) = listener.accept() {
        if let Err(error) = take(connection, jobs) {
            tracing::warn!("a request was refused: {error}");
        }
    }
}

fn take(connection: Connection, jobs: &SyncSender<Job>) -> io::Result<()> {
    connection.set_timeout(REQUEST)?;
    if connection.peer()?.user != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (Request::Crash(crash), Some(core)) = connection.receive::<Request>()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let received = clock::monotonic();
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
