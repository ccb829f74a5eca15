//! The messages between the crash handler, recorders and the daemon. Each packet of a Unix
//! seqpacket socket has one JSON message and at most one open file.

use crate::error::{Error, Result};
use crate::pattern::Specifiers;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, sockopt,
};
use nix::sys::time::TimeVal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Maximum size of a message in bytes.
const MAX_MESSAGE: usize = 64 << 10;

/// Maximum size of a packet of a bundle in bytes.
pub const BUNDLE_CHUNK: usize = MAX_MESSAGE;

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// From the crash handler, with the read end of the core: the process is held until the answer.
    Crash(Specifiers),
    /// From a recorder: it claims this process, and will save its crash itself.
    #[serde(rename = "mind")]
    Claim {
        /// The process, which the recorder traces.
        pid: u32,
    },
    /// From a recorder: the claimed process has crashed. The answer has the probe's data.
    Crashed {
        /// The process.
        pid: u32,
        /// Its program. Trusted only from root's recorders, because it counts against the program's
        /// rate limit.
        #[serde(default)]
        executable: Option<String>,
    },
    /// From a recorder without write access to the spool: the packed bundle of a claimed process.
    /// After the daemon accepts it, the bundle follows in packets of at most [`BUNDLE_CHUNK`]
    /// bytes.
    Deposit {
        /// The process.
        pid: u32,
        /// The short name of its program.
        name: String,
        /// The size of the bundle in bytes.
        size: u64,
    },
}

/// The daemon's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// To a handler: how many bytes of the core the daemon has read. They are in the attached file.
    #[serde(default)]
    pub taken: u64,
    /// To a recorder: nanoseconds from the signal to the probe reader.
    #[serde(default)]
    pub crash_to_reader: Option<u64>,
    /// To a recorder: the kind of probe that reported the crash.
    #[serde(default)]
    pub probe: Option<String>,
    /// To a recorder: the program has exceeded its rate limit, so this bundle must not be saved.
    #[serde(default)]
    pub limited: bool,
    /// To a recorder: the name of its bundle in the spool.
    #[serde(default)]
    pub id: Option<String>,
    /// To a recorder: why the request is refused.
    #[serde(default)]
    pub refused: Option<String>,
}

/// The process at the other end of a connection, as the kernel recorded it when connecting
/// (`SO_PEERCRED` of unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process id.
    pub pid: i32,
    /// The effective user id.
    pub user: u32,
}

/// A connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

/// A listening socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

fn open() -> nix::Result<OwnedFd> {
    socket::socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
}

impl Listener {
    /// Listens at a path, and replaces a file there. Only the owner may connect.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub fn bind(path: &Path) -> Result<Self> {
        Self::bind_for(path, 0o600)
    }

    /// Listens at a path to which all users may connect. Check each request against
    /// [`Connection::peer`].
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub fn bind_for_all(path: &Path) -> Result<Self> {
        Self::bind_for(path, 0o666)
    }

    fn bind_for(path: &Path, mode: u32) -> Result<Self> {
        let made = || -> io::Result<OwnedFd> {
            let _ = std::fs::remove_file(path);
            let socket = open()?;
            // Set the permissions before any process can connect.
            socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
            socket::listen(&socket, Backlog::new(1024)?)?;
            Ok(socket)
        };
        made().map(Self).map_err(Error::file("listen at", path))
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// When the socket is shut down.
    pub fn accept(&self) -> io::Result<Connection> {
        let fd = socket::accept4(self.0.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(Connection(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes all calls of [`Self::accept`] return.
    pub fn shut_down(&self) {
        let _ = socket::shutdown(self.0.as_raw_fd(), socket::Shutdown::Both);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Connection {
    /// Creates a connection from a descriptor.
    #[must_use]
    pub fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Returns two connected ends.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socket::socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        Ok((Self(one), Self(other)))
    }

    /// Connects to a daemon.
    ///
    /// # Errors
    /// When no daemon listens.
    pub fn open(path: &Path) -> io::Result<Self> {
        let socket = open()?;
        socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(socket))
    }

    /// Connects to a daemon. `limit` applies to connecting and to each answer.
    ///
    /// # Errors
    /// When no daemon listens, or the limit is exceeded.
    pub fn open_within(path: &Path, limit: Duration) -> io::Result<Self> {
        let connection = Self(open()?);
        // The send timeout also limits the wait in the listener's queue (net/unix/af_unix.c).
        connection.set_timeout(limit)?;
        socket::connect(connection.0.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(connection)
    }

    /// Waits until every copy of the other end is closed, at most for `limit`. Returns whether all
    /// are closed.
    #[must_use]
    pub fn is_hung_up(&self, limit: Duration) -> bool {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut waited = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
        let _ = poll(&mut waited, limit);
        let [waited] = waited;
        waited
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }

    /// Returns whether the other end is still open. Reads nothing.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match socket::recv(self.0.as_raw_fd(), &mut [0], flags) {
            Ok(got) => got != 0,
            Err(error) => error == nix::errno::Errno::EAGAIN,
        }
    }

    /// Sets the timeout for reading and writing.
    ///
    /// # Errors
    /// When the kernel refuses, which is unlikely.
    pub fn set_timeout(&self, limit: Duration) -> io::Result<()> {
        let limit = TimeVal::new(
            limit.as_secs().try_into().unwrap_or(i64::MAX),
            limit.subsec_micros().into(),
        );
        socket::setsockopt(&self.0, sockopt::ReceiveTimeout, &limit)?;
        Ok(socket::setsockopt(&self.0, sockopt::SendTimeout, &limit)?)
    }

    /// Returns the process at the other end.
    ///
    /// # Errors
    /// When the kernel refuses, which is unlikely.
    pub fn peer(&self) -> io::Result<Peer> {
        let found = socket::getsockopt(&self.0, sockopt::PeerCredentials)?;
        Ok(Peer {
            pid: found.pid(),
            user: found.uid(),
        })
    }

    /// Sends a packet of a bundle: from one to [`BUNDLE_CHUNK`] bytes.
    ///
    /// # Errors
    /// When the other end is closed or does not read in time.
    pub fn send_chunk(&self, bytes: &[u8]) -> io::Result<()> {
        socket::send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// Receives a packet of a bundle into `room`. Returns its size.
    ///
    /// # Errors
    /// When the other end is closed, does not write in time, or sends a larger packet.
    pub fn receive_chunk(&self, room: &mut [u8]) -> io::Result<usize> {
        match socket::recv(self.0.as_raw_fd(), room, MsgFlags::MSG_TRUNC)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            got if got > room.len() => Err(io::ErrorKind::InvalidData.into()),
            got => Ok(got),
        }
    }

    /// Sends a message and an optional file.
    ///
    /// # Errors
    /// When the other end is closed or does not read in time.
    pub fn send(&self, message: &impl Serialize, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let files: Vec<_> = file.iter().map(AsRawFd::as_raw_fd).collect();
        let along = [ControlMessage::ScmRights(&files)];
        let along = if files.is_empty() { &[][..] } else { &along[..] };
        socket::sendmsg::<UnixAddr>(
            self.0.as_raw_fd(),
            &[IoSlice::new(&bytes)],
            along,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }

    /// Receives a message from a peer that has no file to send. The kernel drops attached files
    /// without installing them here, because closing a file of a FUSE file system would wait for
    /// its server.
    ///
    /// # Errors
    /// When the other end is closed, does not write in time, or sends an invalid message.
    pub fn receive_alone<T: DeserializeOwned>(&self) -> io::Result<T> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let len = socket::recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(bytes.get(..len).unwrap_or_default())?)
    }

    /// Receives a message from a trusted peer, and its attached file.
    ///
    /// # Errors
    /// When the other end is closed, does not write in time, or sends an invalid message.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<(T, Option<OwnedFd>)> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut room = nix::cmsg_space!([std::os::fd::RawFd; 1]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = socket::recvmsg::<UnixAddr>(
            self.0.as_raw_fd(),
            &mut parts,
            Some(&mut room),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        let len = got.bytes;
        let mut file = None;
        for along in got.cmsgs()? {
            if let ControlMessageOwned::ScmRights(files) = along {
                for fd in files {
                    // SAFETY: the kernel has just returned this descriptor, and nothing else owns
                    // it.
                    file = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let message = serde_json::from_slice(bytes.get(..len).unwrap_or_default())?;
        Ok((message, file))
    }
}

impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.0
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hang_up_is_detected_at_the_last_close() {
        let (ours, theirs) = Connection::pair().unwrap();
        let copy = theirs.as_fd().try_clone_to_owned().unwrap();
        drop(theirs);
        assert!(!ours.is_hung_up(Duration::from_millis(1)));
        drop(copy);
        assert!(ours.is_hung_up(Duration::from_secs(1)));
    }
    use std::io::{Read, Write};

    #[test]
    fn messages_are_separate_and_carry_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::bind(&path).unwrap();
        let (mut reading, mut writing) = std::io::pipe().unwrap();
        let client = Connection::open(&path).unwrap();
        client.send(&Request::Claim { pid: 7 }, None).unwrap();
        client
            .send(
                &Request::Crashed {
                    pid: 8,
                    executable: None,
                },
                Some(writing.as_fd()),
            )
            .unwrap();
        let server = listener.accept().unwrap();
        assert_eq!(server.receive::<Request>().unwrap().0, Request::Claim { pid: 7 });
        let (request, file) = server.receive::<Request>().unwrap();
        assert_eq!(
            request,
            Request::Crashed {
                pid: 8,
                executable: None,
            }
        );
        std::fs::File::from(file.unwrap()).write_all(b"ours").unwrap();
        writing.flush().unwrap();
        let mut got = [0; 4];
        reading.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"ours");
        drop(server);
        assert!(client.receive::<Reply>().is_err(), "the other end is gone");
    }

    #[test]
    fn unexpected_files_are_not_installed() {
        let (client, server) = Connection::pair().unwrap();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (reading, _writing) = std::io::pipe().unwrap();
        let files = [reading.as_raw_fd(); 20];
        let along = [ControlMessage::ScmRights(&files)];
        let before = open();
        for _ in 0..100 {
            let text = [IoSlice::new(b"{\"mind\":{\"pid\":7}}")];
            socket::sendmsg::<UnixAddr>(client.0.as_raw_fd(), &text, &along, MsgFlags::empty(), None)
                .unwrap();
            let request: Request = server.receive_alone().unwrap();
            assert_eq!(request, Request::Claim { pid: 7 });
        }
        // Other tests also open and close files, but not two thousand.
        assert!(open() < before + 200, "{} then, {} now", before, open());
    }

    #[test]
    fn invalid_message_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::bind(&path).unwrap();
        let client = Connection::open(&path).unwrap();
        client.send(&["no", "request"], None).unwrap();
        assert!(listener.accept().unwrap().receive::<Request>().is_err());
        client.set_timeout(Duration::from_millis(10)).unwrap();
    }
}
