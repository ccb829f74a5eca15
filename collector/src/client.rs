//! Sends requests to a running daemon over its control socket.

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long the daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of an answer in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// The daemon's answer to a snapshot request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct SnapshotReply {
    /// The name of the bundle in the spool.
    pub id: String,
    /// The path of the bundle.
    pub bundle: PathBuf,
}

/// Asks the daemon to save a running process, or the traces of all processors if `pid` is `None`.
/// The process continues.
///
/// # Errors
/// [`Error::NotRunning`], or the reason that the daemon reports.
pub fn snapshot(runtime: &Runtime, pid: Option<u32>) -> Result<SnapshotReply> {
    let query = pid.map_or_else(String::new, |pid| format!("?pid={pid}"));
    let path = runtime.control_socket();
    let mut socket = UnixStream::connect(&path).map_err(|_| Error::NotRunning(path.clone()))?;
    let mut ask = || {
        socket.set_read_timeout(Some(TIMEOUT))?;
        write!(
            socket,
            "POST /snapshot{query} HTTP/1.1\r\nHost: backtrail\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )?;
        let mut answer = String::new();
        Read::by_ref(&mut socket)
            .take(MAX_ANSWER)
            .read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer: String = ask().map_err(Error::file("talk to", &path))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let strange = || {
        Error::Unable(format!(
            "the collector at {} sent no valid answer",
            path.display()
        ))
    };
    if head.starts_with("HTTP/1.1 200") {
        return serde_json::from_str(body).map_err(|_| strange());
    }
    let refused: serde_json::Value = serde_json::from_str(body).map_err(|_| strange())?;
    let why = refused.get("error").and_then(serde_json::Value::as_str);
    Err(why.map_or_else(strange, |why| Error::Unable(why.to_owned())))
}
