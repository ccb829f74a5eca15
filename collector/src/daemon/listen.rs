//! Requests of crash handlers. Only root may connect here: nobody else can make a crash wait.

use super::Shared;
use super::kept::{self, Jobs};
use crate::clock;
use crate::crash::Waiting;
use crate::wire::{Connection, Listener, Request};
use std::io;
use std::time::Duration;

/// How long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(1);

/// Takes requests until the listener is shut down.
pub(super) fn run(shared: &Shared, listener: &Listener, jobs: &Jobs) {
    loop {
        match listener.accept() {
            Ok(connection) => {
                if let Err(error) = take(shared, connection, jobs) {
                    tracing::warn!("a request was refused: {error}");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // Out of descriptors, most likely: they come back.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn take(shared: &Shared, connection: Connection, jobs: &Jobs) -> io::Result<()> {
    connection.set_timeout(REQUEST)?;
    if connection.peer()?.user != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (Request::Crash(crash), Some(core)) = connection.receive::<Request>()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let received = clock::monotonic();
    kept::keep(
        shared,
        jobs,
        crash,
        (core, Waiting::Handler(connection)),
        received,
    );
    Ok(())
}
