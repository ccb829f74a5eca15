//! A client of a server on this machine, with one connection for each request.

use crate::Failure;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time limit of a read.
const LIMIT: Duration = Duration::from_secs(60);

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    host: String,
    /// Lines of every request's head.
    headers: String,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// The time from the connection to the last byte.
    pub time: Duration,
}

impl Client {
    /// Creates a client of an address such as `http://127.0.0.1:7777`.
    pub fn new(address: &str, headers: &[(&str, &str)]) -> Self {
        Self {
            host: address.trim_start_matches("http://").to_owned(),
            headers: lines(headers),
        }
    }

    /// Sends a request. A status other than 2xx is a failure.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, Failure> {
        let answer = self
            .try_request(method, path, headers, body)
            .map_err(|error| format!("{method} {path}: {error}"))?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let text = String::from_utf8_lossy(&answer.body);
        let text: String = text.chars().take(300).collect();
        Err(format!("{method} {path} answers {}: {text}", answer.status))
    }

    fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(&self.host)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}{}Content-Length: {}\r\n\r\n",
            self.host,
            self.headers,
            lines(headers),
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer)?;
        let time = began.elapsed();
        let malformed = || std::io::Error::other("the answer has no head");
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let end = end.ok_or_else(malformed)?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok(Answer {
            status: status.ok_or_else(malformed)?,
            body: answer.split_off(end + 4),
            time,
        })
    }
}

fn lines(headers: &[(&str, &str)]) -> String {
    headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect()
}

/// Runs `count` pieces of work in a number of threads. Returns the time of all.
pub fn parallel(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<(), Failure> + Sync,
) -> Result<Duration, Failure> {
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let run = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return Ok(());
                }
                work(at)?;
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        workers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .try_for_each(|result| result.unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })?;
    Ok(began.elapsed())
}
