//! Framing: converts the bytes of a stream into messages and back.
//!
//! A message of the base protocol of DAP is headers, an empty line, and a JSON body. The codec
//! knows no stream. A [lenient](Decoder::lenient) decoder serves the program that started this one.
//! It reports and skips invalid input, and continues at the next Content-Length header. A
//! [strict](Decoder::strict) one serves any client. It accepts nothing but messages, because a page
//! can make a browser send bytes of its choice after the start of a request.

use serde_json::Value;
use std::ops::Range;

/// A longer body is refused.
const MAX_BODY: usize = 16 << 20;
/// Longer headers are refused, and so are as many bytes without a header.
const MAX_HEADER: usize = 4 << 10;
/// The header of the body's length, in any case.
const LENGTH: &[u8] = b"content-length:";
/// The header that may follow it.
const TYPE: &[u8] = b"content-type:";

/// The result of reading.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A message.
    Message(Value),
    /// Bytes that are none, which were skipped: why.
    Bad(String),
    /// Bytes that are none, and where the next message begins is unknown: why. Nothing is read
    /// after them.
    Lost(String),
}

/// Takes messages out of bytes as they come.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// The number of consumed bytes of the buffer.
    taken: usize,
    is_strict: bool,
    is_lost: bool,
}

/// The kind of input at the start of the buffer.
enum FrameStart {
    /// A header that was read whole: where the body is.
    Known(Range<usize>),
    Incomplete,
    Bad {
        why: String,
        end: usize,
    },
}

impl Decoder {
    /// Skips what is no message.
    #[must_use]
    pub fn lenient() -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            is_strict: false,
            is_lost: false,
        }
    }

    /// Takes messages alone, with the headers of the protocol alone.
    #[must_use]
    pub fn strict() -> Self {
        Self {
            is_strict: true,
            ..Self::lenient()
        }
    }

    /// Adds bytes that came in.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.is_lost {
            return;
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message; `None`: more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        if self.is_lost {
            return None;
        }
        let head = match self.is_strict {
            true => strict_head(self.rest()),
            false => {
                // The end of the headers is searched once, however many pieces the message has.
                self.take(find(self.rest(), LENGTH).unwrap_or(0));
                lenient_head(self.rest())
            }
        };
        let range = match head {
            FrameStart::Known(range) => range,
            FrameStart::Incomplete => return None,
            FrameStart::Bad { why, .. } if self.is_strict => {
                self.is_lost = true;
                self.buffer = Vec::new();
                self.taken = 0;
                return Some(Frame::Lost(why));
            }
            FrameStart::Bad { why, end } => {
                self.take(end);
                return Some(Frame::Bad(why));
            }
        };
        let body = self.rest().get(range.clone())?;
        let read = serde_json::from_slice(body);
        // A length that is too large has swallowed the next message.
        let swallowed = match read.is_err() && !self.is_strict {
            true => find(body, LENGTH).map(|at| range.start + at),
            false => None,
        };
        self.take(swallowed.unwrap_or(range.end));
        Some(match read {
            Ok(message) => Frame::Message(message),
            Err(error) => Frame::Bad(format!("the body of a message is not JSON: {error}")),
        })
    }

    /// The unconsumed input.
    fn rest(&self) -> &[u8] {
        self.buffer.get(self.taken..).unwrap_or_default()
    }

    fn take(&mut self, length: usize) {
        self.taken = self.buffer.len().min(self.taken.saturating_add(length));
    }
}

/// The header that the bytes begin with: a length, perhaps a type, an empty line; each line as the
/// protocol ends it.
fn strict_head(bytes: &[u8]) -> FrameStart {
    let bad = |why: &str| FrameStart::Bad {
        why: why.to_owned(),
        end: 0,
    };
    // Before a line is whole: a client that is none may send no end of it.
    let known = bytes.len().min(LENGTH.len());
    let (begin, name) = (bytes.get(..known), LENGTH.get(..known));
    if !begin
        .zip(name)
        .is_some_and(|(begin, name)| begin.eq_ignore_ascii_case(name))
    {
        return bad("not a message of the Debug Adapter Protocol: it does not begin with Content-Length");
    }
    let mut length = None;
    let mut at = 0;
    while let Some(line) = line_at(bytes, at) {
        let text = bytes.get(at..line).unwrap_or_default();
        at = line + 1;
        let Some(text) = text.strip_suffix(b"\r") else {
            return bad("a header line does not end with CR LF");
        };
        match length {
            None => match length_of(text.get(LENGTH.len()..).unwrap_or_default()) {
                Ok(found) => length = Some(found),
                Err(why) => return FrameStart::Bad { why, end: 0 },
            },
            Some(length) if text.is_empty() => return FrameStart::Known(at..at + length),
            Some(_) if begins_with(text, TYPE) => {}
            Some(_) => return bad("unknown header of the Debug Adapter Protocol"),
        }
    }
    match bytes.len() > MAX_HEADER {
        true => bad("the header is too long"),
        false => FrameStart::Incomplete,
    }
}

/// The next header that names a length, wherever it begins.
fn lenient_head(bytes: &[u8]) -> FrameStart {
    let Some(start) = find(bytes, LENGTH) else {
        return match bytes.len() < MAX_HEADER {
            true => FrameStart::Incomplete,
            // The name of the header may be cut at the end.
            false => FrameStart::Bad {
                why: "the input has no message header".to_owned(),
                end: bytes.len() - LENGTH.len(),
            },
        };
    };
    let number = start + LENGTH.len();
    let incomplete = || match bytes.len() - number > MAX_HEADER {
        true => FrameStart::Bad {
            why: "the header is too long".to_owned(),
            end: number,
        },
        false => FrameStart::Incomplete,
    };
    let Some(line) = line_at(bytes, number) else {
        return incomplete();
    };
    let mut at = line + 1;
    let length = match length_of(bytes.get(number..line).unwrap_or_default()) {
        Ok(length) => length,
        Err(why) => return FrameStart::Bad { why, end: at },
    };
    while let Some(line) = line_at(bytes, at) {
        let text = bytes.get(at..line).unwrap_or_default();
        at = line + 1;
        if text.is_empty() || text == b"\r" {
            return FrameStart::Known(at..at + length);
        }
    }
    incomplete()
}

/// Returns the end of the line that begins at `from`; `None` if it is incomplete or too long for a
/// header.
fn line_at(bytes: &[u8], from: usize) -> Option<usize> {
    let end = bytes.len().min(from.saturating_add(MAX_HEADER));
    let line = bytes.get(from..end)?.iter().position(|&byte| byte == b'\n')?;
    Some(from + line)
}

/// The length that a header's value says.
fn length_of(value: &[u8]) -> Result<usize, String> {
    let text = String::from_utf8_lossy(value).trim().to_owned();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let length = is_number.then(|| text.parse::<usize>());
    match length {
        Some(Ok(length)) if length <= MAX_BODY => Ok(length),
        Some(_) => Err(format!(
            "a message has {} bytes; the limit is {MAX_BODY}",
            shortened(&text)
        )),
        None => Err(format!("\"{}\" is not a message length", shortened(&text))),
    }
}

/// Returns the index of the lowercase `wanted` in `bytes`, ignoring case.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window.eq_ignore_ascii_case(wanted))
}

/// Returns whether a line begins with `wanted`, ignoring case.
fn begins_with(line: &[u8], wanted: &[u8]) -> bool {
    let begin = line.get(..wanted.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(wanted))
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
        let mut decoder = Decoder::lenient();
        decoder.feed(bytes);
        std::iter::from_fn(|| decoder.next_frame()).collect()
    }

    fn messages(frames: &[Frame]) -> Vec<&Value> {
        let messages = frames.iter().filter_map(|frame| match frame {
            Frame::Message(message) => Some(message),
            Frame::Bad(_) | Frame::Lost(_) => None,
        });
        messages.collect()
    }

    #[test]
    fn what_is_written_is_read_however_it_is_cut() {
        let one = json!({"seq": 1, "text": "ä\r\n\r\nContent-Length: 3"});
        let two = json!([1, 2]);
        let bytes = [encode(&one).unwrap(), encode(&two).unwrap()].concat();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::lenient();
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
            // A length above the limit would wait for input forever.
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
        let mut decoder = Decoder::lenient();
        for _ in 0..100 {
            decoder.feed(&[b'x'; 10_000]);
            while decoder.next_frame().is_some() {}
        }
        assert!(decoder.buffer.len() < MAX_HEADER + 10_000);
        decoder.feed(&encode(&json!(1)).unwrap());
        assert_eq!(decoder.next_frame(), Some(Frame::Message(json!(1))));
    }

    /// Feeds pieces to a strict decoder: what it reads, and the most that it keeps.
    fn strictly<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, usize) {
        let (mut decoder, mut frames, mut most) = (Decoder::strict(), Vec::new(), 0);
        for piece in pieces {
            decoder.feed(piece);
            frames.extend(std::iter::from_fn(|| decoder.next_frame()));
            most = most.max(decoder.buffer.len());
        }
        (frames, most)
    }

    #[test]
    fn strict_decoder_reads_messages_however_they_are_cut() {
        let one = json!({"seq": 1, "text": "\r\n\r\nContent-Length: 3"});
        let typed = b"content-length: 2\r\nContent-Type: x; charset=utf-8\r\n\r\n[]";
        let bytes = [&encode(&one).unwrap()[..], typed].concat();
        for size in 1..bytes.len() {
            let (frames, _) = strictly(bytes.chunks(size));
            assert_eq!(
                frames,
                [Frame::Message(one.clone()), Frame::Message(json!([]))],
                "{size}"
            );
        }
    }

    #[test]
    fn strict_decoder_ends_at_the_first_byte_that_is_no_header() {
        let next = encode(&json!({"seq": 2})).unwrap();
        for wrong in [
            &b"P"[..],
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1:4711\r\nContent-Length: 9\r\n\r\n",
            b"\r\n",
            b" Content-Length: 2\r\n\r\n{}",
            b"Content-Lengt: 2\r\n\r\n{}",
            b"Content-Type: x\r\nContent-Length: 2\r\n\r\n{}",
            b"Content-Length: 2\r\nHost: a\r\n\r\n{}",
            b"Content-Length: 2\r\nOrigin: a\r\n\r\n{}",
            b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            b"Content-Length: 2\n\n{}",
            b"Content-Length: +2\r\n\r\n{}",
            b"Content-Length: 99999999999\r\n\r\n",
            b"\x16\x03\x01",
        ] {
            // Each alone, and after a message that is one.
            for before in [&[][..], &next] {
                let bytes = [before, wrong, &next, &next].concat();
                for size in [1, 7, bytes.len()] {
                    let (frames, _) = strictly(bytes.chunks(size));
                    assert!(
                        matches!(frames.last(), Some(Frame::Lost(_))),
                        "{wrong:?}: {frames:?}"
                    );
                    let read = usize::from(!before.is_empty());
                    assert_eq!(messages(&frames).len(), read, "{wrong:?}: {frames:?}");
                    assert_eq!(frames.len(), read + 1, "{wrong:?}: {frames:?}");
                }
            }
        }
    }

    #[test]
    fn strict_decoder_finds_no_message_in_a_body() {
        let inner = encode(&json!({"seq": 2})).unwrap();
        let outer = format!("Content-Length: {}\r\n\r\n", inner.len()).into_bytes();
        let (frames, _) = strictly(std::iter::once(&[outer, inner].concat()[..]));
        assert!(matches!(&frames[..], [Frame::Bad(_)]), "{frames:?}");
    }

    #[test]
    fn headers_without_an_end_are_not_kept() {
        let piece = [b'1'; 1000];
        for begin in [&b"Content-Length: "[..], b"Content-Length: 2\r\nContent-Type: "] {
            let endless = || std::iter::once(begin).chain(std::iter::repeat_n(&piece[..], 10_000));
            let (frames, most) = strictly(endless());
            assert!(matches!(&frames[..], [Frame::Lost(_)]), "{frames:?}");
            assert!(most < MAX_HEADER + 2000, "{most}");
            let mut lenient = Decoder::lenient();
            for piece in endless() {
                lenient.feed(piece);
                while lenient.next_frame().is_some() {}
                assert!(lenient.buffer.len() < MAX_HEADER + 2000);
            }
        }
    }

    #[test]
    fn a_body_of_headers_takes_linear_time() {
        let wrong = b"Content-Length: 9000000\r\n\r\nx".repeat(400_000);
        let begun = std::time::Instant::now();
        let mut decoder = Decoder::lenient();
        decoder.feed(&wrong);
        while decoder.next_frame().is_some() {}
        // Moving what is left for each of them would take hours.
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }
}
