//! Requests of crash handlers. Only root may connect, so no other user can delay a crash.

use super::jobs::{self, IncomingCrash, Jobs};
use super::state::DaemonState;
use crate::clock;
use crate::crash::Holder;
use crate::wire::{Connection, Listener, Request};
use std::io;
use std::time::Duration;

/// How long a client may take to send its request.
const REQUEST: Duration = Duration::from_secs(1);

/// Accepts requests until the listener is shut down.
pub(super) fn run(shared: &DaemonState, listener: &Listener, jobs: &Jobs) {
    loop {
        match listener.accept() {
            Ok(connection) => {
                if let Err(error) = take(shared, connection, jobs) {
                    tracing::warn!("refused a request of a crash handler: {error}");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // The most likely cause is a lack of descriptors, which is temporary.
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
