//! Which user has the other end of a connection over the loopback interface.
//!
//! The kernel lists every TCP socket with its owner in `/proc/net/tcp` and `/proc/net/tcp6`
//! (proc_pid_net(5)).

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

/// The kernel's list of sockets in this network namespace.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// `TCP_ESTABLISHED`, `TCP_FIN_WAIT1`, `TCP_FIN_WAIT2`: connected, or closed for writing alone.
const CONNECTED: [&str; 3] = ["01", "04", "05"];

/// A socket as the kernel lists it.
struct SocketEntry<'a> {
    local: SocketAddr,
    remote: SocketAddr,
    state: &'a str,
    uid: u32,
    /// 0 means that no process has it any more, and `uid` is invalid.
    inode: u64,
}

/// Returns whether the peer of a TCP connection is a socket of this process's user.
///
/// # Errors
///
/// If the kernel's table of sockets cannot be read.
pub fn is_own(local: SocketAddr, peer: SocketAddr) -> io::Result<bool> {
    if !is_loopback(peer) || !is_loopback(local) || !has_distinct_uid(own_uid())? {
        return Ok(false);
    }
    // A socket that is closed while it is listed may show as root's: once it is closed, it stays
    // so.
    for _ in 0..2 {
        if owner(local, peer)? != Some(own_uid()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The user of this process.
pub fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Returns whether no other user can appear with the id of this one.
///
/// All users that a user namespace does not map appear with one id (user_namespaces(7)).
pub fn has_distinct_uid(uid: u32) -> io::Result<bool> {
    let map = std::fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.lines().any(|line| has(line, uid).unwrap_or(false)))
}

/// Returns whether a line of a `uid_map` (first inside, first outside, count) contains the user.
fn has(line: &str, uid: u32) -> Option<bool> {
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
    let first = numbers.next()?.ok()?;
    let count = numbers.nth(1)?.ok()?;
    Some((first..first.saturating_add(count)).contains(&u64::from(uid)))
}

/// The user whose socket is connected from `peer` to `local`.
fn owner(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    for table in TABLES {
        // Without IPv6 there is one.
        let Ok(file) = std::fs::File::open(table) else {
            continue;
        };
        let mut lines = BufReader::new(file);
        let mut line = String::new();
        while {
            line.clear();
            lines.read_line(&mut line)? > 0
        } {
            let found = row(&line).filter(|row| {
                // Seen from the other end.
                canonical(row.local) == canonical(peer)
                    && canonical(row.remote) == canonical(local)
                    && CONNECTED.contains(&row.state)
                    && row.inode != 0
            });
            if let Some(row) = found {
                return Ok(Some(row.uid));
            }
        }
    }
    Ok(None)
}

fn row(line: &str) -> Option<SocketEntry<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (local, remote) = (words.nth(1)?, words.next()?);
    let state = words.next()?;
    // Queues, timer, retransmissions.
    let uid = words.nth(3)?.parse().ok()?;
    let inode = words.nth(1)?.parse().ok()?;
    Some(SocketEntry {
        local: address(local)?,
        remote: address(remote)?,
        state,
        uid,
        inode,
    })
}

/// An address as the kernel lists it: words of 32 bits in this machine's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let mut bytes = Vec::new();
    for at in (0..words.len()).step_by(8) {
        let word = u32::from_str_radix(words.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// An IPv4 address that is written as an IPv6 one is the IPv4 one.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Returns whether an address is of this machine's loopback interface.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn own_connections_are_distinguished_from_closed_ones() {
        for bound in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(bound) else {
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, peer) = listener.accept().unwrap();
            let local = stream.local_addr().unwrap();
            assert!(is_own(local, peer).unwrap(), "{bound}");
            assert_eq!(owner(local, peer).unwrap(), Some(own_uid()));
            // Another port of the same client is another connection.
            let other = SocketAddr::new(peer.ip(), peer.port() ^ 1);
            assert!(!is_own(local, other).unwrap());
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(is_own(local, peer).unwrap(), "half closed");
            drop(client);
            assert!(!is_own(local, peer).unwrap(), "closed: nobody's, and not root's");
        }
    }

    #[test]
    fn rows_of_the_kernel_are_read() {
        let line = "   1: 0100007F:B20E 0100007F:1267 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let row = row(line).unwrap();
        assert_eq!(row.local, "127.0.0.1:45582".parse().unwrap());
        assert_eq!(row.remote, "127.0.0.1:4711".parse().unwrap());
        assert_eq!((row.state, row.uid, row.inode), ("01", 1000, 4711));
        let mapped = address("0000000000000000FFFF00000100007F:1267").unwrap();
        assert_eq!(canonical(mapped), canonical("127.0.0.1:4711".parse().unwrap()));
        assert!(is_loopback(mapped) && !is_loopback("192.0.2.1:1".parse().unwrap()));
        for wrong in [
            "",
            "sl local_address",
            "1: x:1 y:2 01",
            "1: 01:1 02:2 01 0 0 0 0 0 0 0",
        ] {
            assert!(super::row(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn unmapped_users_are_not_distinct() {
        assert_eq!(has("         0          0 4294967295", 65534), Some(true));
        assert_eq!(has("         0       1000          1", 65534), Some(false));
        assert_eq!(has("      1000       1000          1", 1000), Some(true));
        assert_eq!(has("", 0), None);
    }
}
