//! Requests of recorders. Every user may connect, so this thread delays no crash, and everything is
//! bounded.

use super::claimed::Refusal;
use super::deposits::DepositQueue;
use super::state::DaemonState;
use crate::crash::{Deposit, SaveOutcome};
use crate::error::{Error, Result};
use crate::users::User;
use crate::wire::{BUNDLE_CHUNK, Connection, Listener, Peer, Reply, Request};
use backtrail_pt::Pid;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a client may take to send its request, and each packet.
const REQUEST: Duration = Duration::from_secs(1);
/// How long a client may take to send a bundle.
const BUNDLE: Duration = Duration::from_secs(120);
/// How long the probe's event may take to arrive after the process has ended.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// Requests that are answered at once: of all users, of one user, and those reserved for system
/// users.
const MAX_REQUESTS: usize = 32;
const MAX_PER_USER: usize = 4;
const RESERVE: usize = 8;
/// Maximum bytes of a packed bundle in addition to the limit of a core.
const BESIDE_THE_CORE: u64 = 1 << 30;

/// Counts the requests that are being answered, by user.
#[derive(Debug, Default)]
struct RequestLimiter(Mutex<HashMap<User, usize>>);

/// Counts one request until it is dropped.
struct RequestPermit {
    limiter: Arc<RequestLimiter>,
    user: User,
}

impl RequestLimiter {
    /// Admits a request. `None`: the user or the daemon has too many.
    fn enter(self: &Arc<Self>, user: User) -> Option<RequestPermit> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = inside.get(&user).copied().unwrap_or_default();
        let places = if user.is_system {
            MAX_REQUESTS
        } else {
            MAX_REQUESTS - RESERVE
        };
        if of_user >= MAX_PER_USER || inside.values().sum::<usize>() >= places {
            return None;
        }
        inside.insert(user, of_user + 1);
        Some(RequestPermit {
            limiter: Arc::clone(self),
            user,
        })
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut inside = self.limiter.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = inside.get_mut(&self.user) {
            *count -= 1;
        }
        inside.retain(|_, count| *count != 0);
    }
}

/// Accepts requests until the listener is shut down.
pub(super) fn run(shared: &Arc<DaemonState>, listener: &Listener, deposits: &Arc<DepositQueue>) {
    let limiter = Arc::new(RequestLimiter::default());
    loop {
        let connection = match listener.accept() {
            Ok(connection) => connection,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Ok(peer) = connection.peer().and_then(|peer| {
            connection.set_timeout(REQUEST)?;
            Ok(peer)
        }) else {
            continue;
        };
        let Some(permit) = limiter.enter(shared.saver.users.owner_of(peer.user)) else {
            let _ = refuse(&connection, "the collector is answering too many requests");
            continue;
        };
        let (shared, deposits) = (Arc::clone(shared), Arc::clone(deposits));
        let answer = move || {
            let _place = permit;
            if let Err(error) = take(&shared, &deposits, connection, peer) {
                tracing::warn!("a request of user {} failed: {error}", peer.user);
            }
        };
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        if let Err(error) = thread.spawn(answer) {
            tracing::warn!("cannot answer a recorder: {error}");
        }
    }
}

fn refuse(connection: &Connection, why: &str) -> io::Result<()> {
    let refused = Some(why.to_owned());
    connection.send(
        &Reply {
            refused,
            ..Reply::default()
        },
        None,
    )
}

fn take(shared: &DaemonState, deposits: &DepositQueue, connection: Connection, peer: Peer) -> io::Result<()> {
    const NOT_CLAIMED: Refusal = "no recorder of this user claims the process";
    let request = connection.receive_alone::<Request>()?;
    match request {
        Request::Claim { pid } => {
            let connection = Arc::new(connection);
            match shared.claimed.claim(pid, peer, Arc::clone(&connection)) {
                Ok(()) => {
                    if let Some(heap) = &shared.saver.heap {
                        heap.release(Pid(pid));
                    }
                    connection.send(&Reply::default(), None)
                }
                Err(why) => refuse(&connection, why),
            }
        }
        Request::Crashed { pid, .. } | Request::Deposit { pid, .. }
            if !shared.claimed.belongs_to(pid, peer) =>
        {
            refuse(&connection, NOT_CLAIMED)
        }
        Request::Crashed { pid, executable } => {
            shared.saver.metrics.crashes_recorded.count();
            let executable = executable.filter(|_| peer.user == 0);
            let user = shared.saver.users.owner_of(peer.user);
            let limited = executable.is_some_and(|executable| !shared.saver.admits(user, &executable));
            let reply = Reply {
                limited,
                ..probe_reply(shared, pid)
            };
            connection.send(&reply, None)
        }
        Request::Deposit { pid, name, size } => {
            match deposit((shared, deposits), &connection, peer, (pid, name), size) {
                Ok(id) => {
                    tracing::info!("saved process {pid} from a recorder of user {}: {id}", peer.user);
                    let id = Some(id);
                    connection.send(
                        &Reply {
                            id,
                            ..Reply::default()
                        },
                        None,
                    )
                }
                Err(error) => {
                    tracing::warn!("refused a bundle of user {}: {error}", peer.user);
                    refuse(&connection, &error.to_string())
                }
            }
        }
        Request::Crash(_) => refuse(&connection, "only the kernel may report crashes"),
    }
}

/// Returns the probe's data about the crash of a process.
fn probe_reply(shared: &DaemonState, pid: u32) -> Reply {
    // Without a probe, no event will arrive.
    let timeout = shared
        .saver
        .probe
        .as_ref()
        .map_or(Duration::ZERO, |_| PROBE_TIMEOUT);
    let crash = shared.saver.pending.take(Pid(pid), timeout);
    Reply {
        crash_to_reader: crash.as_ref().map(|it| it.read_at.saturating_sub(it.sample.at)),
        probe: crash.and_then(|_| shared.saver.probe.clone()),
        ..Reply::default()
    }
}

/// Receives a bundle and saves it in the spool. Returns its name there. A worker checks that the
/// file is a bundle of this process. Nothing else in it is trusted.
fn deposit(
    (shared, deposits): (&DaemonState, &DepositQueue),
    connection: &Connection,
    peer: Peer,
    (pid, name): (u32, String),
    size: u64,
) -> Result<String> {
    let saver = &shared.saver;
    let user = saver.users.owner_of(peer.user);
    let limit = saver.config().crash.core_limit.0.saturating_add(BESIDE_THE_CORE);
    let unable = |why: &str| Error::Unable(why.to_owned());
    if size > limit {
        return Err(unable("the bundle is too large"));
    }
    if !saver.admits(user, "recorders") {
        return Err(unable("this user's recorders have saved too many crashes"));
    }
    if saver.spool.room()? < size {
        return Err(unable("the spool's disk is full"));
    }
    let spool = saver.spool.directory();
    // The file has no name, so it vanishes in any case.
    let mut packed = tempfile::tempfile_in(spool).map_err(Error::file("write to", spool))?;
    connection
        .send(&Reply::default(), None)
        .and_then(|()| receive(connection, &mut packed, size))
        .and_then(|()| packed.seek(SeekFrom::Start(0)))
        .map_err(Error::system("receive the bundle"))?;
    let (program, service) = shared.claimed.program(pid);
    let saved = deposits.save(Deposit {
        pid,
        name,
        program,
        service,
        uid: peer.user,
        user,
        packed,
    });
    match saved? {
        SaveOutcome::Bundle(id) => Ok(id),
        SaveOutcome::Limited => Err(unable("this user's recorders have saved too many crashes")),
    }
}

fn receive(connection: &Connection, file: &mut File, size: u64) -> io::Result<()> {
    let deadline = Instant::now() + BUNDLE;
    let mut piece = vec![0; BUNDLE_CHUNK];
    let mut left = size;
    while left != 0 {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let got = connection.receive_chunk(&mut piece)?;
        left = left.checked_sub(got as u64).ok_or(io::ErrorKind::InvalidData)?;
        file.write_all(piece.get(..got).unwrap_or_default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> User {
        User {
            id,
            is_system: id < 1000,
        }
    }

    #[test]
    fn one_user_cannot_take_all_permits() {
        let limiter = Arc::new(RequestLimiter::default());
        let mut inside: Vec<RequestPermit> = (0..MAX_PER_USER)
            .map(|_| limiter.enter(user(1007)).unwrap())
            .collect();
        assert!(limiter.enter(user(1007)).is_none());
        inside.push(limiter.enter(user(1008)).unwrap());
        inside.remove(0);
        inside.push(limiter.enter(user(1007)).unwrap());
        for id in 2000.. {
            match limiter.enter(user(id)) {
                Some(permit) => inside.push(permit),
                None => break,
            }
        }
        assert_eq!(inside.len(), MAX_REQUESTS - RESERVE);
        for _ in 0..MAX_PER_USER {
            inside.push(limiter.enter(User::ROOT).unwrap());
        }
        drop(inside);
        assert!(limiter.0.lock().unwrap().is_empty());
    }

    #[test]
    fn bundle_larger_than_announced_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = Listener::bind_for_all(&path).unwrap();
        let client = Connection::open(&path).unwrap();
        let server = listener.accept().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        client.send_chunk(&[1; 100]).unwrap();
        client.send_chunk(&[2; 50]).unwrap();
        receive(&server, &mut file, 150).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 150);
        client.send_chunk(&[3; 100]).unwrap();
        let error = receive(&server, &mut file, 99).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(client);
        assert!(receive(&server, &mut file, 1).is_err());
    }
}
