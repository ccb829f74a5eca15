//! A packed trace by its address: HTTPS, or HTTP on this machine's loopback; never from another
//! origin than the one that was given.

use crate::access::Access;
use crate::origin::{allowed_uri, origin};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tempfile::{NamedTempFile, TempPath};
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};

/// No more is fetched.
const MAX_SIZE: u64 = 32 << 30;
/// No more redirects are followed.
const MAX_REDIRECTS: usize = 5;
/// A server that does not answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks for cancellation.
const PERIOD: Duration = Duration::from_millis(50);

/// The reason why a file cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not supported.
    #[error("cannot fetch {address}: {problem}")]
    Address {
        /// As given.
        address: String,
        /// The problem.
        problem: &'static str,
    },
    /// Its server is none that the user allowed.
    #[error(
        "cannot fetch {address}: {origin} is not allowed; `backtrail dap --allow-origin {origin}` allows it, \
         in VS Code the setting backtrail.allowedOrigins"
    )]
    Origin {
        /// The address.
        address: String,
        /// Its origin.
        origin: String,
    },
    /// The file exceeds the user's limit.
    #[error("cannot fetch {address}: it is larger than the limit of {limit} MiB")]
    TooLarge {
        /// The address.
        address: String,
        /// In MiB.
        limit: u64,
    },
    /// The given digest is invalid.
    #[error("\"{0}\" is not a SHA-256, which has 64 hexadecimal digits")]
    NoDigest(String),
    /// The server redirects to another origin.
    #[error("{from} redirects to {to}, which is another origin; use that address if you trust it")]
    Redirected {
        /// The address.
        from: String,
        /// The target of the redirect.
        to: String,
    },
    /// The server said no.
    #[error("cannot fetch {address}: the server returned {status}")]
    Refused {
        /// The address.
        address: String,
        /// The status with its meaning.
        status: String,
    },
    /// The connection failed.
    #[error("cannot fetch {address}: {problem}")]
    Connection {
        /// The address.
        address: String,
        /// The problem.
        problem: String,
    },
    /// The file has another digest.
    #[error("{address} has the SHA-256 {found} instead of {wanted}: it is another file")]
    Digest {
        /// The address.
        address: String,
        /// The digest of the received file.
        found: String,
        /// As given.
        wanted: String,
    },
    /// A file on this machine cannot be checked.
    #[error("cannot check {path}: {problem}")]
    Unreadable {
        /// The file.
        path: String,
        /// The problem.
        problem: String,
    },
    /// The request was canceled.
    #[error("cancelled")]
    Cancelled,
}

/// The text is an address, not a path.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let scheme = text
        .split_once("://")
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// The events of a download.
enum DownloadEvent {
    Size { done: u64, total: Option<u64> },
    Done(Result<TempPath, Error>),
}

/// Fetches a file; `report` receives the number of received bytes, and the total if known.
///
/// # Errors
///
/// If the file cannot be fetched, has another digest, or the request is canceled.
pub fn fetch(
    address: &str,
    sha256: Option<&str>,
    access: &Access,
    cancel: &AtomicBool,
    report: &dyn Fn(u64, Option<u64>),
) -> Result<TempPath, Error> {
    let sha256 = sha256.map(digest).transpose()?;
    let uri = allowed(address)?;
    if let Some(origin) = origin(&uri).filter(|origin| !access.allows(origin)) {
        return Err(Error::Origin {
            address: address.to_owned(),
            origin,
        });
    }
    let (sender, receiver) = channel();
    let download = Download {
        address: address.to_owned(),
        sha256,
        token: origin(&uri).and_then(|origin| access.token_for(&origin).map(str::to_owned)),
        limit: access.download_limit.unwrap_or(MAX_SIZE).min(MAX_SIZE),
    };
    // A silent server must not delay the cancellation, so the download thread is left to its own
    // timeout.
    std::thread::spawn(move || {
        let done = download.run(&sender);
        let _ = sender.send(DownloadEvent::Done(done));
    });
    wait(&receiver, address, cancel, report)
}

/// A digest in small letters.
fn digest(text: &str) -> Result<String, Error> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_digest {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(Error::NoDigest(text.to_owned())),
    }
}

/// Checks the digest of a local file; `report` receives the number of read bytes and the total.
///
/// # Errors
///
/// If the digest differs, the file cannot be read, or the request is canceled.
pub fn check(
    path: &Path,
    sha256: &str,
    cancel: &AtomicBool,
    report: &dyn Fn(u64, Option<u64>),
) -> Result<(), Error> {
    let wanted = digest(sha256)?;
    let name = || path.display().to_string();
    let unreadable = |error: std::io::Error| Error::Unreadable {
        path: name(),
        problem: error.to_string(),
    };
    let metadata = path.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Error::Unreadable {
            path: name(),
            problem: "`sha256` requires a file, but this is a folder; remove `sha256`".to_owned(),
        });
    }
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    let (mut digest, mut done) = (Sha256::new(), 0);
    let mut piece = vec![0; 1 << 20];
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        let read = file.read(&mut piece).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        digest.update(piece.get(..read).unwrap_or_default());
        done += read as u64;
        report(done, Some(metadata.len()));
    }
    let found = hex(&digest.finalize());
    match found == wanted {
        true => Ok(()),
        false => Err(Error::Digest {
            address: name(),
            found,
            wanted,
        }),
    }
}

fn wait(
    receiver: &Receiver<DownloadEvent>,
    address: &str,
    cancel: &AtomicBool,
    report: &dyn Fn(u64, Option<u64>),
) -> Result<TempPath, Error> {
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        match receiver.recv_timeout(PERIOD) {
            Ok(DownloadEvent::Size { done, total }) => report(done, total),
            Ok(DownloadEvent::Done(done)) => return done,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Connection {
                    address: address.to_owned(),
                    problem: "the download was interrupted".to_owned(),
                });
            }
        }
    }
}

struct Download {
    address: String,
    /// In small letters.
    sha256: Option<String>,
    /// The token for the origin of the address. Redirects stay there.
    token: Option<String>,
    /// No more is taken.
    limit: u64,
}

impl Download {
    fn run(&self, news: &Sender<DownloadEvent>) -> Result<TempPath, Error> {
        let mut at = allowed(&self.address)?;
        // A company's own authorities are among the system's.
        let trusted = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .build();
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .tls_config(trusted)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .user_agent(concat!("backtrail/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = agent.get(&at);
            if let Some(token) = &self.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|error| self.failed(&error))?;
            let status = response.status();
            if status.is_success() {
                return self.save(response, news);
            }
            let location = response.headers().get("location").and_then(|to| to.to_str().ok());
            match location.filter(|_| status.is_redirection()) {
                Some(to) => at = self.redirected(&at, to)?,
                None => {
                    return Err(Error::Refused {
                        address: self.address.clone(),
                        status: status.to_string(),
                    });
                }
            }
        }
        Err(Error::Address {
            address: self.address.clone(),
            problem: "too many redirects",
        })
    }

    fn failed(&self, problem: &dyn std::fmt::Display) -> Error {
        Error::Connection {
            address: self.address.clone(),
            problem: problem.to_string(),
        }
    }

    /// Returns the target of a redirect, if it has the same origin.
    fn redirected(&self, from: &Uri, to: &str) -> Result<Uri, Error> {
        let elsewhere = || Error::Redirected {
            from: self.address.clone(),
            to: to.to_owned(),
        };
        let absolute = match to.starts_with('/') && !to.starts_with("//") {
            true => format!("{}{to}", origin(from).ok_or_else(elsewhere)?),
            false => to.to_owned(),
        };
        let to = allowed(&absolute).map_err(|_| elsewhere())?;
        match origin(&to) == origin(from) {
            true => Ok(to),
            false => Err(elsewhere()),
        }
    }

    fn save(
        &self,
        response: ureq::http::Response<ureq::Body>,
        news: &Sender<DownloadEvent>,
    ) -> Result<TempPath, Error> {
        // A hub states the digest of a bundle.
        let stated = response.headers().get("x-content-sha256");
        let stated = stated.and_then(|stated| digest(stated.to_str().ok()?).ok());
        let wanted = self.sha256.clone().or(stated);
        let length = response.headers().get("content-length");
        let total: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let too_large = || Error::TooLarge {
            address: self.address.clone(),
            limit: self.limit >> 20,
        };
        if total.is_some_and(|total| total > self.limit) {
            return Err(too_large());
        }
        let mut file = NamedTempFile::with_suffix(".btz").map_err(|error| self.failed(&error))?;
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut digest = Sha256::new();
        let mut piece = vec![0; 1 << 16];
        let mut done = 0;
        loop {
            let read = body.read(&mut piece).map_err(|error| self.failed(&error))?;
            let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
                break;
            };
            done += read.len() as u64;
            if done > self.limit {
                return Err(too_large());
            }
            digest.update(read);
            file.write_all(read).map_err(|error| self.failed(&error))?;
            // The receiver is gone.
            if news.send(DownloadEvent::Size { done, total }).is_err() {
                return Err(Error::Cancelled);
            }
        }
        let found = hex(&digest.finalize());
        match &wanted {
            Some(wanted) if *wanted != found => Err(Error::Digest {
                address: self.address.clone(),
                found,
                wanted: wanted.clone(),
            }),
            _ => Ok(file.into_temp_path()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Parses an address from which fetching is allowed.
fn allowed(address: &str) -> Result<Uri, Error> {
    allowed_uri(address).map_err(|problem| Error::Address {
        address: address.to_owned(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::HubToken;
    use crate::origin::origin_of;
    use std::net::TcpListener;

    /// Answers each connection with the next of these.
    fn serve(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    }

    fn ok(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn moved(to: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }

    fn fetched(address: &str, sha256: Option<&str>) -> Result<String, String> {
        fetched_by(&Access::default(), address, sha256)
    }

    fn fetched_by(access: &Access, address: &str, sha256: Option<&str>) -> Result<String, String> {
        let never = AtomicBool::new(false);
        let path = fetch(address, sha256, access, &never, &|_, _| {}).map_err(|error| error.to_string())?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn a_file_of_this_machine_is_checked() {
        let (never, dir) = (AtomicBool::new(false), tempfile::tempdir().unwrap());
        let path = dir.path().join("x.btz");
        std::fs::write(&path, "hello").unwrap();
        let check = |path: &Path, digest: &str| check(path, digest, &never, &|_, _| {});
        let right = "2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824";
        assert!(check(&path, right).is_ok());
        assert!(matches!(check(&path, "2cf2"), Err(Error::NoDigest(_))));
        assert!(matches!(check(&path, &"0".repeat(64)), Err(Error::Digest { .. })));
        assert!(matches!(check(dir.path(), right), Err(Error::Unreadable { .. })));
        assert!(matches!(
            check(&dir.path().join("none"), right),
            Err(Error::Unreadable { .. })
        ));
    }

    #[test]
    fn a_file_is_fetched_and_checked() {
        let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let address = serve(vec![ok("hello"), ok("hello"), ok("other")]);
        assert_eq!(fetched(&address, None).as_deref(), Ok("hello"));
        assert_eq!(
            fetched(&address, Some(&digest.to_uppercase())).as_deref(),
            Ok("hello")
        );
        let error = fetched(&address, Some("2cf24")).unwrap_err();
        assert!(error.contains("is not a SHA-256"), "{error}");
        let error = fetched(&address, Some(digest)).unwrap_err();
        assert!(error.contains("it is another file"), "{error}");
    }

    #[test]
    fn a_redirect_is_followed_to_the_same_origin_alone() {
        let address = serve(vec![moved("/there"), ok("hello")]);
        assert_eq!(fetched(&address, None).as_deref(), Ok("hello"));
        for elsewhere in [
            "http://127.0.0.2:1/x",
            "https://127.0.0.1/x",
            "//127.0.0.2/x",
            "file:///etc/passwd",
            "there",
        ] {
            let address = serve(vec![moved(elsewhere)]);
            let error = fetched(&address, None).unwrap_err();
            assert!(error.contains("another origin"), "{error}");
        }
        let endless = serve(vec![moved("/there"); 8]);
        assert!(
            fetched(&endless, None)
                .unwrap_err()
                .contains("too many redirects")
        );
    }

    #[test]
    fn other_origins_than_the_allowed_are_not_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        listener.set_nonblocking(true).unwrap();
        let mut access = Access {
            origins: Some(vec!["https://crash.example.com".parse().unwrap()]),
            ..Access::default()
        };
        let error = fetched_by(&access, &format!("{address}/internal?do=it"), None).unwrap_err();
        assert!(error.contains(&format!("{address} is not allowed")), "{error}");
        assert!(listener.accept().is_err(), "it was connected to");
        let served = serve(vec![ok("hello"), ok("hello")]);
        access.origins = Some(vec![format!("{served}/").parse().unwrap()]);
        assert_eq!(fetched_by(&access, &served, None).as_deref(), Ok("hello"));
        access.download_limit = Some(4);
        let error = fetched_by(&access, &served, None).unwrap_err();
        assert!(error.contains("is larger than"), "{error}");
    }

    /// Answers one request, and returns its address and the request.
    fn serve_one(answer: String) -> (String, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let size = stream.read(&mut request).unwrap();
            sender
                .send(String::from_utf8_lossy(&request[..size]).into_owned())
                .unwrap();
            let _ = stream.write_all(answer.as_bytes());
        });
        (address, requests)
    }

    #[test]
    fn token_goes_to_its_origin_alone() {
        let (address, requests) = serve_one(ok("hello"));
        let access = Access {
            hub_token: HubToken::new(address.parse().unwrap(), " secret\n"),
            ..Access::default()
        };
        assert!(!format!("{access:?}").contains("secret"));
        assert_eq!(
            fetched_by(&access, &format!("{address}/crash/x.btz"), None).as_deref(),
            Ok("hello")
        );
        assert!(requests.recv().unwrap().contains("Bearer secret"));
        let (other, requests) = serve_one(ok("hello"));
        assert_eq!(fetched_by(&access, &other, None).as_deref(), Ok("hello"));
        assert!(!requests.recv().unwrap().to_lowercase().contains("authorization"));
        assert_eq!(HubToken::new(address.parse().unwrap(), "a\r\nb"), None);
    }

    #[test]
    fn digest_that_the_server_states_is_checked() {
        let answer = ok("hello").replace(
            "Connection",
            &format!("X-Content-SHA256: {}\r\nConnection", "0".repeat(64)),
        );
        let (address, _requests) = serve_one(answer);
        assert!(
            fetched(&address, None)
                .unwrap_err()
                .contains("it is another file")
        );
    }

    #[test]
    fn origins_are_written_one_way() {
        for (text, origin) in [
            ("https://Example.com:443", "https://example.com"),
            ("https://example.com/", "https://example.com"),
            ("https://example.com:8443", "https://example.com:8443"),
            ("http://[::1]:80", "http://[::1]"),
        ] {
            assert_eq!(origin_of(text).as_deref(), Some(origin), "{text}");
        }
        for wrong in [
            "",
            "*",
            "example.com",
            "https://example.com/a",
            "https://example.com/?a",
            "https://example.com#a",
            "https://user@example.com",
            "http://example.com",
            "ftp://example.com",
        ] {
            assert_eq!(origin_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn refusals_of_the_server_are_reported() {
        let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let address = serve(vec![answer.to_owned()]);
        assert!(fetched(&address, None).unwrap_err().contains("404 Not Found"));
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf";
        assert!(fetched(&serve(vec![cut.to_owned()]), None).is_err());
    }

    #[test]
    fn a_server_that_says_nothing_is_left_when_the_user_cancels() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let cancelled = AtomicBool::new(true);
        let error = fetch(&address, None, &Access::default(), &cancelled, &|_, _| {}).unwrap_err();
        assert!(matches!(error, Error::Cancelled));
    }

    #[test]
    fn addresses_are_refused_before_anything_is_sent() {
        for wrong in [
            "http://example.com/a.btz",
            "https://user:word@example.com/a.btz",
            "https:///a.btz",
            "http://127.0.0.1.example.com/a",
        ] {
            assert!(is_address(wrong) && allowed(wrong).is_err(), "{wrong}");
        }
        assert!(allowed("https://example.com/a.btz").is_ok());
        assert!(allowed("http://[::1]:8080/a.btz").is_ok() && allowed("http://localhost/a").is_ok());
        assert!(!is_address("/tmp/a.btz") && !is_address("C:\\a.btz") && !is_address("file:///a"));
    }
}
