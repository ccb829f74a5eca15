//! Framing: bytes of a stream into messages and back (base protocol of DAP: headers, an empty line, a JSON body).
//!
//! It knows no stream. What is no message is told and skipped: the next header line that names a length begins anew.

use serde_json::Value;
use std::ops::Range;

/// A longer body is refused.
const MAX_BODY: usize = 64 << 20;
/// So many bytes without a header that is one are dropped.
const MAX_HEADER: usize = 64 << 10;
/// What names the length of the body, in any case.
const LENGTH: &[u8] = b"content-length:";

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A message.
    Message(Value),
    /// Bytes that are none: why.
    Bad(String),
}

/// Takes messages out of bytes as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

/// A header that was read whole.
struct Header {
    /// Where the body is.
    body: Range<usize>,
}

enum Head {
    Known(Header),
    Incomplete,
    Bad { why: String, end: usize },
}

impl Decoder {
    /// Adds bytes that came in.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message; `None`: more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let header = match self.head() {
            Head::Known(header) => header,
            Head::Incomplete => return self.endless(),
            Head::Bad { why, end } => {
                self.drop_to(end);
                return Some(Frame::Bad(why));
            }
        };
        let body = self.buffer.get(header.body.clone())?;
        match serde_json::from_slice(body) {
            Ok(message) => {
                self.drop_to(header.body.end);
                Some(Frame::Message(message))
            }
            Err(error) => {
                // A length that is too large has swallowed the next message.
                let swallowed = find(body, LENGTH).map(|at| header.body.start + at);
                self.drop_to(swallowed.unwrap_or(header.body.end));
                Some(Frame::Bad(format!("the body of a message is no JSON: {error}")))
            }
        }
    }

    /// The next header, wherever it begins.
    fn head(&mut self) -> Head {
        let Some(start) = find(&self.buffer, LENGTH) else {
            return Head::Incomplete;
        };
        let rest = self.buffer.get(start + LENGTH.len()..).unwrap_or_default();
        let Some(line) = rest.iter().position(|&byte| byte == b'\n') else {
            return Head::Incomplete;
        };
        let number = rest.get(..line).unwrap_or_default();
        let after = start + LENGTH.len() + line + 1;
        let text = String::from_utf8_lossy(number).trim().to_owned();
        let Ok(length) = text.parse::<usize>() else {
            let why = format!("\"{}\" is no length of a message", shortened(&text));
            return Head::Bad { why, end: after };
        };
        if length > MAX_BODY {
            let why = format!("a message of {length} bytes is longer than {MAX_BODY}, which is the most");
            return Head::Bad { why, end: after };
        }
        match self.end_of_headers(after) {
            Some(body) => Head::Known(Header {
                body: body..body + length,
            }),
            None => Head::Incomplete,
        }
    }

    /// Where the empty line behind the headers ends.
    fn end_of_headers(&self, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            let rest = self.buffer.get(at..)?;
            let line = rest.iter().position(|&byte| byte == b'\n')?;
            let text = rest.get(..line).unwrap_or_default();
            at += line + 1;
            if text.is_empty() || text == b"\r" {
                return Some(at);
            }
            if at - from > MAX_HEADER {
                return Some(at);
            }
        }
    }

    /// Bytes that go on without a header are not kept.
    fn endless(&mut self) -> Option<Frame> {
        let has_header = find(&self.buffer, LENGTH).is_some();
        if has_header || self.buffer.len() < MAX_HEADER {
            return None;
        }
        // The name of the header may be cut at the end.
        self.drop_to(self.buffer.len().saturating_sub(LENGTH.len()));
        Some(Frame::Bad("what comes in has no header of a message".to_owned()))
    }

    fn drop_to(&mut self, end: usize) {
        self.buffer.drain(..end.min(self.buffer.len()));
    }
}

/// Where `wanted`, which is in small letters, is in `bytes` in any case.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window.eq_ignore_ascii_case(wanted))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A message with its header.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn encode(message: &impl serde::Serialize) -> serde_json::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let mut bytes = format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend(body);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(bytes: &[u8]) -> Vec<Frame> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        std::iter::from_fn(|| decoder.next_frame()).collect()
    }

    fn messages(frames: &[Frame]) -> Vec<&Value> {
        let messages = frames.iter().filter_map(|frame| match frame {
            Frame::Message(message) => Some(message),
            Frame::Bad(_) => None,
        });
        messages.collect()
    }

    #[test]
    fn what_is_written_is_read_however_it_is_cut() {
        let one = json!({"seq": 1, "text": "ä\r\n\r\nContent-Length: 3"});
        let two = json!([1, 2]);
        let bytes = [encode(&one).unwrap(), encode(&two).unwrap()].concat();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.feed(part);
                frames.extend(std::iter::from_fn(|| decoder.next_frame()));
            }
            assert_eq!(frames, [Frame::Message(one.clone()), Frame::Message(two.clone())]);
        }
    }

    #[test]
    fn odd_headers_are_read() {
        let bytes = b"content-LENGTH:  2 \nX-Other: 7\r\nContent-Type: x\n\n{}Content-Length: 2\r\n\r\n[]";
        assert_eq!(
            read(bytes),
            [Frame::Message(json!({})), Frame::Message(json!([]))]
        );
    }

    #[test]
    fn after_what_is_no_message_the_next_one_is_read() {
        let next = encode(&json!({"seq": 2})).unwrap();
        for wrong in [
            &b"Content-Length: 5\r\n\r\n{nope"[..],
            b"Content-Length: 500\r\n\r\n{}",
            b"Content-Length: 1\r\n\r\n{\"seq\": 1}",
            b"Content-Length: many\r\n\r\n",
            b"Content-Length: -1\r\n\r\n",
            b"Content-Length: 99999999999\r\n\r\n",
            b"Content-Length: 0\r\n\r\n",
            b"garbage\r\n\r\n",
            b"\r\n\r\n\r\n",
            b"\xff\xfe\0",
        ] {
            let mut bytes = wrong.to_vec();
            bytes.extend(&next);
            // What a length that is too large waits for.
            bytes.extend(vec![b' '; 500]);
            bytes.extend(&next);
            let frames = read(&bytes);
            assert!(
                messages(&frames).contains(&&json!({"seq": 2})),
                "{wrong:?}: {frames:?}"
            );
        }
    }

    #[test]
    fn nothing_is_kept_of_what_never_ends() {
        let mut decoder = Decoder::default();
        for _ in 0..100 {
            decoder.feed(&[b'x'; 10_000]);
            while decoder.next_frame().is_some() {}
        }
        assert!(decoder.buffer.len() < MAX_HEADER + 10_000);
        decoder.feed(&encode(&json!(1)).unwrap());
        assert_eq!(decoder.next_frame(), Some(Frame::Message(json!(1))));
    }
}
