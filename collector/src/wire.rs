//! What the crash handler, recorders and the daemon say to each other: one JSON message a packet over a Unix
//! socket that keeps packets apart, with at most one open file along.

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

/// No message is longer.
const MAX_MESSAGE: usize = 64 << 10;

/// No packet of a bundle is longer.
pub const BUNDLE_CHUNK: usize = MAX_MESSAGE;

/// What the daemon is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// From the crash handler, with the reading end of the core: this process is kept until the answer.
    Crash(Specifiers),
    /// From a recorder: it minds this process, and will save its history itself.
    #[serde(rename = "mind")]
    Claim {
        /// The process, which it traces.
        pid: u32,
    },
    /// From a recorder: the process that it minds has crashed, what did the probe see?
    Crashed {
        /// The process.
        pid: u32,
        /// What it ran; believed of root's recorders alone, for it counts against that executable's limit.
        #[serde(default)]
        executable: Option<String>,
    },
    /// From a recorder that may not write to the spool: the packed bundle of a process that it minds follows, in packets of
    /// no more than [`BUNDLE_CHUNK`] bytes, once this is granted.
    Deposit {
        /// The process.
        pid: u32,
        /// The short name of its program.
        name: String,
        /// How many bytes follow.
        size: u64,
    },
}

/// What it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// To a handler: how many bytes the daemon has taken from the core; they come along in a file.
    #[serde(default)]
    pub taken: u64,
    /// To a recorder: nanoseconds from the signal to the reader.
    #[serde(default)]
    pub crash_to_reader: Option<u64>,
    /// To a recorder: what told of the crash.
    #[serde(default)]
    pub probe: Option<String>,
    /// To a recorder: its executable has caused too many bundles, and shall not cause this one.
    #[serde(default)]
    pub limited: bool,
    /// To a recorder: the name that its bundle has in the spool.
    #[serde(default)]
    pub id: Option<String>,
    /// To a recorder: why it does not get what it asked for.
    #[serde(default)]
    pub refused: Option<String>,
}

/// Who is at the other end of a connection, as the kernel saw it when it was made (`SO_PEERCRED` of unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub pid: i32,
    /// Its effective user.
    pub user: u32,
}

/// A connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

/// Where connections come in.
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
    /// Listens at a path; what stood there goes. Only its owner may connect.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn bind(path: &Path) -> Result<Self> {
        Self::bind_for(path, 0o600)
    }

    /// Listens at a path to which everybody may connect: each request is to be held against [`Connection::peer`].
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn bind_for_all(path: &Path) -> Result<Self> {
        Self::bind_for(path, 0o666)
    }

    fn bind_for(path: &Path, mode: u32) -> Result<Self> {
        let made = || -> io::Result<OwnedFd> {
            let _ = std::fs::remove_file(path);
            let socket = open()?;
            // Set before anybody could connect.
            socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
            socket::listen(&socket, Backlog::new(1024)?)?;
            Ok(socket)
        };
        made().map(Self).map_err(Error::file("listen at", path))
    }

    /// The next connection.
    ///
    /// # Errors
    /// When the socket is shut down.
    pub fn accept(&self) -> io::Result<Connection> {
        let fd = socket::accept4(self.0.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        Ok(Connection(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Ends all waiting [`Self::accept`].
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
    /// The connection behind a descriptor.
    #[must_use]
    pub fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Two connections, each the other end of the other.
    ///
    /// # Errors
    /// When there are no descriptors left.
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
    /// When none listens.
    pub fn open(path: &Path) -> io::Result<Self> {
        let socket = open()?;
        socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(socket))
    }

    /// Connects to a daemon that may take so long to let us in, and for each answer.
    ///
    /// # Errors
    /// When none listens, or it takes longer.
    pub fn open_within(path: &Path, limit: Duration) -> io::Result<Self> {
        let connection = Self(open()?);
        // What limits sending limits waiting for a place in the listener's queue too (net/unix/af_unix.c).
        connection.set_timeout(limit)?;
        socket::connect(connection.0.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(connection)
    }

    /// Waits until every copy of the other end is closed, for `limit` at most. Returns whether it is.
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

    /// Whether the other end is still there; nothing is read.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match socket::recv(self.0.as_raw_fd(), &mut [0], flags) {
            Ok(got) => got != 0,
            Err(error) => error == nix::errno::Errno::EAGAIN,
        }
    }

    /// How long a read or write may take.
    ///
    /// # Errors
    /// Hardly any.
    pub fn set_timeout(&self, limit: Duration) -> io::Result<()> {
        let limit = TimeVal::new(
            limit.as_secs().try_into().unwrap_or(i64::MAX),
            limit.subsec_micros().into(),
        );
        socket::setsockopt(&self.0, sockopt::ReceiveTimeout, &limit)?;
        Ok(socket::setsockopt(&self.0, sockopt::SendTimeout, &limit)?)
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// Hardly any.
    pub fn peer(&self) -> io::Result<Peer> {
        let found = socket::getsockopt(&self.0, sockopt::PeerCredentials)?;
        Ok(Peer {
            pid: found.pid(),
            user: found.uid(),
        })
    }

    /// Sends a packet of a bundle: no more than [`BUNDLE_CHUNK`] bytes, and not none.
    ///
    /// # Errors
    /// When the other end is gone or does not read in time.
    pub fn send_chunk(&self, bytes: &[u8]) -> io::Result<()> {
        socket::send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// Receives a packet of a bundle into `room`; how many bytes it has.
    ///
    /// # Errors
    /// When the other end is gone, does not write in time, or writes more than there is room for.
    pub fn receive_chunk(&self, room: &mut [u8]) -> io::Result<usize> {
        match socket::recv(self.0.as_raw_fd(), room, MsgFlags::MSG_TRUNC)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            got if got > room.len() => Err(io::ErrorKind::InvalidData.into()),
            got => Ok(got),
        }
    }

    /// Sends a message, and a file along.
    ///
    /// # Errors
    /// When the other end is gone or does not read in time.
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

    /// The next message of a peer that has no file to send. Files that come along are dropped by the
    /// kernel, and never installed here: to close one of a FUSE file system would wait for its
    /// server.
    ///
    /// # Errors
    /// When the other end is gone, does not write in time, or writes what is no message.
    pub fn receive_alone<T: DeserializeOwned>(&self) -> io::Result<T> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let len = socket::recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(bytes.get(..len).unwrap_or_default())?)
    }

    /// The next message of a trusted peer, and the file that came along.
    ///
    /// # Errors
    /// When the other end is gone, does not write in time, or writes what is no message.
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
                    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
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
    fn hang_up_is_seen_when_the_last_copy_is_closed() {
        let (ours, theirs) = Connection::pair().unwrap();
        let copy = theirs.as_fd().try_clone_to_owned().unwrap();
        drop(theirs);
        assert!(!ours.is_hung_up(Duration::from_millis(1)));
        drop(copy);
        assert!(ours.is_hung_up(Duration::from_secs(1)));
    }
    use std::io::{Read, Write};

    #[test]
    fn messages_stay_apart_and_files_come_along() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
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
    fn files_that_nobody_asked_for_are_not_installed() {
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
        // Other tests open and close files meanwhile, but not two thousand.
        assert!(open() < before + 200, "{} then, {} now", before, open());
    }

    #[test]
    fn rubbish_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        let listener = Listener::bind(&path).unwrap();
        let client = Connection::open(&path).unwrap();
        client.send(&["no", "request"], None).unwrap();
        assert!(listener.accept().unwrap().receive::<Request>().is_err());
        client.set_timeout(Duration::from_millis(10)).unwrap();
    }
}
