//! The socket that the kernel connects to at a crash: `core_pattern` as `@@SOCKET` (Linux 6.17).
//!
//! The kernel starts no handler, so a storm of crashes costs little. In return, the core is not
//! passed on, and no process is held while the daemon is down.
//!
//! The protocol is in `include/uapi/linux/coredump.h`. The kernel sends its features, the daemon
//! answers with its choice, and the kernel confirms with a mark and writes the core. The process is
//! held until the connection is closed.

use super::jobs::{self, IncomingCrash, Jobs};
use super::state::DaemonState;
use crate::clock;
use crate::crash::Holder;
use crate::error::{Error, Result};
use crate::pattern::Specifiers;
use backtrail_process::{RawTid, status};
use nix::sys::socket::{getsockopt, sockopt};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Size of `struct coredump_req`: size, size of the answer, mask.
const REQUEST: usize = 16;
/// `COREDUMP_KERNEL`: the kernel writes the core.
const KERNEL: u64 = 1 << 0;
/// `COREDUMP_REJECT`: no core is written.
const REJECT: u64 = 1 << 2;
/// `COREDUMP_WAIT`: the kernel holds the process until the connection is closed.
const WAIT: u64 = 1 << 3;
/// `COREDUMP_MARK_REQACK`, an `enum`: the kernel accepted the answer.
const TAKEN: [u8; 4] = [0; 4];
/// How long the kernel may take to send a few bytes.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Listens at a path, and replaces a file there. Only root and the kernel may connect.
pub(super) fn bind(path: &Path) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let bind = || {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        Ok(listener)
    };
    bind().map_err(Error::file("listen at", path))
}

/// Accepts crashes until the listener is shut down.
pub(super) fn run(shared: &DaemonState, listener: &UnixListener, jobs: &Jobs) {
    for stream in listener.incoming() {
        let taken = stream.and_then(|stream| take(shared, stream, jobs));
        match taken {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => tracing::warn!("a crashing process could not be held: {error}"),
            Ok(()) => {}
        }
    }
}

fn take(shared: &DaemonState, mut stream: UnixStream, jobs: &Jobs) -> io::Result<()> {
    let received = clock::monotonic();
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials)?;
    let mut request = [0; REQUEST];
    stream.read_exact(&mut request)?;
    let word = |at: usize| {
        request.get(at..at + 4).map_or(0, |bytes| {
            bytes
                .iter()
                .rev()
                .fold(0u32, |value, byte| value << 8 | u32::from(*byte))
        })
    };
    let (size, answer_size) = (word(0) as usize, word(4) as usize);
    if size < REQUEST || answer_size < REQUEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // A later kernel may send a larger request.
    io::copy(
        &mut Read::by_ref(&mut stream).take((size.min(4096) - REQUEST) as u64),
        &mut io::sink(),
    )?;
    let pid = peer.pid() as u32;
    let claimed = shared.claimed.is_claimed(pid);
    let mut answer = [0; REQUEST];
    answer[..4].copy_from_slice(&(REQUEST as u32).to_le_bytes());
    answer[8..].copy_from_slice(&if claimed { REJECT } else { KERNEL | WAIT }.to_le_bytes());
    stream.write_all(&answer)?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    if mark != TAKEN {
        return Err(io::Error::other(format!(
            "the kernel refused the answer ({})",
            mark[0]
        )));
    }
    if claimed {
        return Ok(());
    }
    stream.set_read_timeout(None)?;
    let crash = Specifiers {
        pid,
        uid: peer.uid(),
        gid: peer.gid(),
        name: status::thread_name(pid as RawTid, pid as RawTid)
            .unwrap_or_default()
            .into(),
        ..Specifiers::default()
    };
    let incoming = IncomingCrash {
        crash,
        core: stream.into(),
        holder: Holder::Kernel,
        received,
    };
    jobs::accept_held(shared, jobs, incoming);
    Ok(())
}
