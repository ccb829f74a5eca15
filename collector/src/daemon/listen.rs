//! Requests of crash handlers. Only root may connect here: nobody else can make a crash wait.

use super::DaemonState;
use super::jobs::{self, IncomingCrash, Jobs};
use crate::clock;
use crate::crash::Holder;
use crate::wire::{Connection, Listener, Request};
use std::io;
use std::time::Duration;

/// How long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(1);

/// Takes requests until the listener is shut down.
pub(super) fn run(shared: &DaemonState, listener: &Listener, jobs: &Jobs) {
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

fn take(shared: &DaemonState, connection: Connection, jobs: &Jobs) -> io::Result<()> {
    connection.set_timeout(REQUEST)?;
    if connection.peer()?.user != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (Request::Crash(crash), Some(core)) = connection.receive::<Request>()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let incoming = IncomingCrash {
        crash,
        core,
        holder: Holder::Handler(connection),
        received: clock::monotonic(),
    };
    jobs::accept_held(shared, jobs, incoming);
    Ok(())
}
