//! Uploads files in resumable pieces, by TUS 1.0.0 (core, creation).

use super::answer::Answer;
use super::{Error, HubClient};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use ureq::SendBody;
use ureq::http::Method;

/// The most bytes of one request.
pub const MAX_PIECE: u64 = 8 << 20;
/// The most failures without progress before an upload is given up.
const MAX_FAILURES: u32 = 5;
/// The most times that an upload is created, because the hub no longer had it.
const MAX_CREATIONS: u32 = 3;
/// The status for an upload of a file that the hub has.
const PRESENT: u16 = 409;
/// The pause after the first failure. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause that the hub may request. A longer one ends the upload for now.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// The interval between two checks for cancellation.
const PERIOD: Duration = Duration::from_millis(50);

/// The purpose of an uploaded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadKind {
    /// The bundle of a report.
    Bundle,
    /// A module by its build id.
    Module,
    /// A debug file by its build id.
    Debug,
}

impl UploadKind {
    fn name(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Module => "module",
            Self::Debug => "debug",
        }
    }
}

/// A file to upload.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    /// The purpose.
    pub kind: UploadKind,
    /// The report's identifier, or the build id.
    pub subject: &'a str,
    /// The file. It must not change.
    pub file: &'a File,
    /// The location of an upload of the same file that did not finish.
    pub resume: Option<&'a str>,
}

/// The progress of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadEvent<'a> {
    /// The hub keeps the pieces at this location. A later upload can resume there.
    Started {
        /// The location.
        location: &'a str,
    },
    /// Bytes were read or sent.
    Progress {
        /// The number of bytes that the hub has, or that are on their way.
        done: u64,
        /// The size of the file.
        total: u64,
    },
}

/// Receives the progress. [`ControlFlow::Break`] cancels the upload.
type EventSink<'a> = dyn FnMut(UploadEvent<'_>) -> ControlFlow<()> + 'a;

/// The result of one attempt.
enum Failed {
    /// The hub does not have the upload any more.
    Removed(Error),
    /// The hub has another offset than the client assumed.
    Offset(Error),
    /// Any other error.
    Other(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// The state of an upload over several attempts.
struct Transfer<'a> {
    client: &'a HubClient,
    upload: Upload<'a>,
    length: u64,
    sha256: String,
    location: Option<String>,
    /// The most bytes that the hub confirmed.
    confirmed: u64,
}

impl HubClient {
    /// Uploads a file. After a cut connection, an error of the hub or a lost upload, the transfer
    /// resumes at the hub's offset, a few times.
    ///
    /// # Errors
    /// Fails if the hub cannot be reached or refuses the file, if the file cannot be read, or if
    /// `on_event` canceled the upload.
    pub fn upload(&self, upload: Upload<'_>, on_event: &mut EventSink<'_>) -> Result<(), Error> {
        let length = upload.file.metadata().map_err(Error::file("read"))?.len();
        let sha256 = digest_of(upload.file, length, on_event)?;
        let mut transfer = Transfer {
            client: self,
            upload,
            length,
            sha256,
            location: upload.resume.and_then(|location| self.address.resolve(location)),
            confirmed: 0,
        };
        let (mut failures, mut creations) = (0, 0);
        loop {
            let before = transfer.confirmed;
            let failed = match transfer.attempt(on_event) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            let error = match failed {
                Failed::Removed(error) => {
                    transfer.location = None;
                    transfer.confirmed = 0;
                    creations += 1;
                    if creations >= MAX_CREATIONS {
                        return Err(error);
                    }
                    continue;
                }
                // The hub has taken the whole upload, and its answer was lost.
                Failed::Other(Error::Refused { code: PRESENT, .. }) if creations > 0 => return Ok(()),
                Failed::Offset(error) => error,
                Failed::Other(error) if error.is_temporary() => error,
                Failed::Other(error) => return Err(error),
            };
            failures = if transfer.confirmed > before {
                1
            } else {
                failures + 1
            };
            let wait = error
                .retry_after()
                .unwrap_or(FIRST_PAUSE * 2u32.pow(failures.min(8) - 1));
            if failures >= MAX_FAILURES || wait > MAX_PAUSE {
                return Err(error);
            }
            transfer.pause(wait, on_event)?;
        }
    }
}

impl Transfer<'_> {
    /// Sends the rest of the file.
    fn attempt(&mut self, on_event: &mut EventSink<'_>) -> Result<(), Failed> {
        let (location, mut offset) = match self.location.clone() {
            Some(location) => {
                let offset = self.offset_at(&location)?;
                (location, offset)
            }
            None => self.create(on_event)?,
        };
        self.confirmed = self.confirmed.max(offset);
        self.report(offset, on_event)?;
        while offset < self.length {
            offset = self.send_piece(&location, offset, on_event)?;
            self.confirmed = self.confirmed.max(offset);
        }
        Ok(self.report(offset, on_event)?)
    }

    /// Creates the upload, and returns its location and offset.
    fn create(&mut self, on_event: &mut EventSink<'_>) -> Result<(String, u64), Failed> {
        let client = self.client;
        let fields = [
            ("kind", self.upload.kind.name()),
            ("subject", self.upload.subject),
            ("sha256", &self.sha256),
        ];
        let metadata = fields.map(|(name, value)| format!("{name} {}", BASE64.encode(value)));
        let headers = [
            ("tus-resumable", "1.0.0"),
            ("upload-length", &self.length.to_string()),
            ("upload-metadata", &metadata.join(",")),
            ("content-length", "0"),
        ];
        let url = client.address.join("/api/v1/uploads");
        let mut nothing: &[u8] = &[];
        let answer = client.request(Method::POST, &url, &headers, SendBody::from_reader(&mut nothing))?;
        let answer = answer.successful(&client.address)?;
        let location = answer
            .header("location")
            .and_then(|to| client.address.resolve(to));
        let location = location.ok_or_else(|| client.unexpected("an upload has no location at the hub"))?;
        let offset = answer.number("upload-offset").unwrap_or(0);
        if offset > self.length {
            return Err(client
                .unexpected("its offset is beyond the end of the file")
                .into());
        }
        self.location = Some(location.clone());
        emit(UploadEvent::Started { location: &location }, on_event)?;
        Ok((location, offset))
    }

    /// Returns the offset of the upload at the hub.
    fn offset_at(&self, location: &str) -> Result<u64, Failed> {
        let client = self.client;
        let answer = client.request(
            Method::HEAD,
            location,
            &[("tus-resumable", "1.0.0")],
            SendBody::none(),
        )?;
        self.checked_offset(answer)
    }

    /// Sends one piece, and returns the new offset.
    fn send_piece(&self, location: &str, offset: u64, on_event: &mut EventSink<'_>) -> Result<u64, Failed> {
        let client = self.client;
        let size = (self.length - offset).min(MAX_PIECE);
        let mut file = self.upload.file;
        file.seek(SeekFrom::Start(offset)).map_err(Error::file("read"))?;
        let mut piece = Piece {
            file: file.take(size),
            done: offset,
            total: self.length,
            on_event,
            stopped: None,
        };
        let headers = [
            ("tus-resumable", "1.0.0"),
            ("upload-offset", &offset.to_string()),
            ("content-type", "application/offset+octet-stream"),
            ("content-length", &size.to_string()),
        ];
        let answer = client.request(
            Method::PATCH,
            location,
            &headers,
            SendBody::from_reader(&mut piece),
        );
        if let Some(error) = piece.stopped {
            return Err(error.into());
        }
        let new = self.checked_offset(answer?)?;
        if new <= offset {
            return Err(Failed::Offset(client.unexpected("it took no byte of the upload")));
        }
        Ok(new)
    }

    /// Returns the offset that an answer states.
    fn checked_offset(&self, answer: Answer) -> Result<u64, Failed> {
        let client = self.client;
        let code = answer.status().as_u16();
        let offset = answer.number("upload-offset");
        let answer = answer.successful(&client.address);
        match code {
            404 | 410 => Err(answer.err().map_or_else(
                || Failed::Other(client.unexpected("its status is contradictory")),
                Failed::Removed,
            )),
            409 | 423 => Err(answer.err().map_or_else(
                || Failed::Other(client.unexpected("its status is contradictory")),
                Failed::Offset,
            )),
            _ => {
                answer?;
                let offset = offset.filter(|&offset| offset <= self.length);
                Ok(offset.ok_or_else(|| client.unexpected("it states no offset within the file"))?)
            }
        }
    }

    fn report(&self, done: u64, on_event: &mut EventSink<'_>) -> Result<(), Error> {
        let total = self.length;
        emit(UploadEvent::Progress { done, total }, on_event)
    }

    /// Waits, and checks for cancellation.
    fn pause(&self, time: Duration, on_event: &mut EventSink<'_>) -> Result<(), Error> {
        let end = Instant::now() + time;
        while let Some(left) = end
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
        {
            self.report(self.confirmed, on_event)?;
            std::thread::sleep(left.min(PERIOD));
        }
        Ok(())
    }
}

fn emit(event: UploadEvent<'_>, on_event: &mut EventSink<'_>) -> Result<(), Error> {
    match on_event(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Canceled),
    }
}

/// A part of the file that is being sent.
struct Piece<'a, 'b> {
    file: io::Take<&'a File>,
    done: u64,
    total: u64,
    on_event: &'a mut EventSink<'b>,
    /// The local reason for which the request was ended.
    stopped: Option<Error>,
}

impl Read for Piece<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let event = UploadEvent::Progress {
            done: self.done,
            total: self.total,
        };
        if let Err(error) = emit(event, self.on_event) {
            self.stopped = Some(error);
            return Err(io::ErrorKind::Other.into());
        }
        let read = match self.file.read(bytes) {
            // The file was truncated.
            Ok(0) if self.file.limit() != 0 && !bytes.is_empty() => {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            }
            read => read,
        };
        match read {
            Ok(read) => {
                self.done += read as u64;
                Ok(read)
            }
            Err(source) => {
                self.stopped = Some(Error::File {
                    action: "read",
                    source,
                });
                Err(io::ErrorKind::Other.into())
            }
        }
    }
}

/// Returns the SHA-256 of a file in hexadecimal digits.
fn digest_of(mut file: &File, total: u64, on_event: &mut EventSink<'_>) -> Result<String, Error> {
    file.rewind().map_err(Error::file("read"))?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        emit(UploadEvent::Progress { done: 0, total }, on_event)?;
        let read = file.read(&mut piece).map_err(Error::file("read"))?;
        match piece.get(..read) {
            Some(read) if !read.is_empty() => digest.update(read),
            _ => break,
        }
    }
    Ok(hexadecimal(&digest.finalize()))
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
