//! Sessions with clients that connect: over a Unix socket, or TCP on the loopback interface; only
//! with this process's own user.

use crate::access::Access;
use crate::codec::Decoder;
use crate::peer;
use crate::streams::{runtime, serve};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// The limit of concurrent sessions. Further clients wait.
const MAX_SESSIONS: usize = 32;
/// The delay after a connection that could not be accepted, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two sentences about refused clients: anybody may connect as often as he likes.
const PERIOD: Duration = Duration::from_secs(1);

/// The address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP on the loopback interface.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err("\"unix:\" is followed by the path of the socket".to_owned()),
                false => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        let address: SocketAddr = text
            .parse()
            .map_err(|_| "use 127.0.0.1:PORT, [::1]:PORT or unix:PATH".to_owned())?;
        match peer::is_loopback(address) {
            true => Ok(Self::Tcp(address)),
            false => Err(format!(
                "{} is not a loopback address, and everyone who reaches it could read your files; \
                 listen on 127.0.0.1 or unix:PATH, and forward it, for example with `ssh -L`",
                address.ip()
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The events of a listener.
#[derive(Debug)]
pub enum Notice {
    /// Clients can connect there.
    Listening(Address),
    /// A client was refused, or its session ended in a failure: a sentence.
    Refused(String),
}

/// Serves clients one after the other or concurrently, each with its own session.
///
/// `notify` receives the address before the first client can connect, and the refused clients.
///
/// # Errors
///
/// If the address is not available, or `notify` fails.
pub fn listen(
    address: &Address,
    access: Access,
    notify: impl Fn(Notice) -> io::Result<()> + 'static,
) -> io::Result<()> {
    let access = access.for_clients_that_connect();
    runtime()?.block_on(async {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                notify(Notice::Listening(Address::Tcp(listener.local_addr()?)))?;
                take(&listener, access, notify).await
            }
            Address::Unix(path) => {
                let listener = bind(path)?;
                notify(Notice::Listening(Address::Unix(path.clone())))?;
                take(&listener, access, notify).await
            }
        }
    })
}

/// Binds a socket to which only its owner can connect, in place of one that a process left.
fn bind(path: &Path) -> io::Result<UnixListener> {
    use nix::sys::stat::{Mode, umask};
    // No other thread makes files yet.
    let before = umask(Mode::from_bits_truncate(0o177));
    let mut bound = UnixListener::bind(path);
    if bound
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        && is_left_behind(path)
    {
        bound = std::fs::remove_file(path).and_then(|()| UnixListener::bind(path));
    }
    umask(before);
    bound
}

/// Returns whether a socket belongs to this user and no process listens on it.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|found| found.file_type().is_socket() && found.uid() == peer::own_uid());
    let connected = || std::os::unix::net::UnixStream::connect(path);
    is_socket && connected().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A listener that accepts connections.
trait Listener {
    type Stream: Stream;
    async fn accept(&self) -> io::Result<(Self::Stream, String)>;
}

/// A connection.
trait Stream: Sized + Send + 'static {
    /// Returns whether the peer belongs to this process's user.
    async fn is_own(&self) -> io::Result<bool>;
    async fn serve(self, access: Access) -> io::Result<()>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    async fn accept(&self) -> io::Result<(TcpStream, String)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        Ok((stream, peer.to_string()))
    }
}

impl Stream for TcpStream {
    async fn is_own(&self) -> io::Result<bool> {
        let (local, peer) = (self.local_addr()?, self.peer_addr()?);
        // The table is as long as the machine has connections.
        let asked = tokio::task::spawn_blocking(move || peer::is_own(local, peer));
        asked.await.map_err(io::Error::other)?
    }

    async fn serve(self, access: Access) -> io::Result<()> {
        let (input, output) = self.into_split();
        serve(input, output, Decoder::strict(), access).await
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    async fn accept(&self) -> io::Result<(UnixStream, String)> {
        let (stream, _) = UnixListener::accept(self).await?;
        Ok((stream, "the Unix socket".to_owned()))
    }
}

impl Stream for UnixStream {
    async fn is_own(&self) -> io::Result<bool> {
        let uid = self.peer_cred()?.uid();
        Ok(uid == peer::own_uid() && peer::has_distinct_uid(uid)?)
    }

    async fn serve(self, access: Access) -> io::Result<()> {
        let (input, output) = self.into_split();
        serve(input, output, Decoder::strict(), access).await
    }
}

/// Accepts clients, and reports the refused ones.
async fn take<L: Listener>(
    listener: &L,
    access: Access,
    notify: impl Fn(Notice) -> io::Result<()> + 'static,
) -> io::Result<()> {
    let sessions = Arc::new(Semaphore::new(MAX_SESSIONS));
    let (refusals, mut refused) = tokio::sync::mpsc::channel::<String>(1);
    let clients = async {
        loop {
            let permit = Arc::clone(&sessions).acquire_owned().await;
            let Ok((stream, peer_name)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let (access, refusals) = (access.clone(), refusals.clone());
            let session = async move {
                if let Err(why) = talk(stream, access).await {
                    // While one refusal is reported, others can be dropped.
                    let _ = refusals.try_send(format!("refused a client from {peer_name}: {why}"));
                }
                drop(permit);
            };
            tokio::task::spawn_local(session);
        }
    };
    let notices = async {
        let mut last: Option<Instant> = None;
        while let Some(sentence) = refused.recv().await {
            if last.is_none_or(|last| last.elapsed() >= PERIOD) {
                last = Some(Instant::now());
                // The reader of the reports may be gone.
                let _ = notify(Notice::Refused(sentence));
            }
        }
    };
    tokio::task::LocalSet::new()
        .run_until(async {
            tokio::join!(clients, notices);
        })
        .await;
    Ok(())
}

/// Speaks to a client, if it is this user's.
async fn talk(stream: impl Stream, access: Access) -> Result<(), String> {
    match stream.is_own().await {
        Ok(true) => {}
        Ok(false) => return Err("it belongs to another user".to_owned()),
        Err(error) => {
            return Err(format!(
                "its user cannot be determined ({error}); listen on unix:PATH"
            ));
        }
    }
    match stream.serve(access).await {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
        // A client that goes away is no failure of ours.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_addresses_of_this_machine_are_taken() {
        for address in [
            "127.0.0.1:0",
            "127.9.9.9:1",
            "[::1]:4711",
            "[::ffff:127.0.0.1]:1",
            "unix:a/b",
        ] {
            assert_eq!(address.parse::<Address>().unwrap().to_string(), address);
        }
        for address in [
            "0.0.0.0:1",
            "[::]:1",
            "192.0.2.7:80",
            "[::ffff:0.0.0.0]:1",
            "[2001:db8::1]:1",
        ] {
            let why = address.parse::<Address>().unwrap_err();
            assert!(why.contains("loopback"), "{address}: {why}");
        }
        for address in ["", "unix:", "4711", "127.0.0.1", "localhost:1", "tcp:127.0.0.1:1"] {
            assert!(address.parse::<Address>().is_err(), "{address}");
        }
    }

    #[test]
    fn a_unix_socket_is_private_and_replaces_a_stale_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let runtime = runtime().unwrap();
        let _guard = runtime.enter();
        let listener = bind(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        drop(bind(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "kept").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
