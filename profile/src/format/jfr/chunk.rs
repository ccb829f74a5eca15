//! Chunks of a recording, and the events in a chunk.

use super::cursor::{Cursor, Integers};
use super::{MAGIC, malformed};
use crate::{Error, Result};

/// The size of a chunk's header.
pub(super) const HEADER_SIZE: usize = 68;
/// The type of the event with the types of all events.
const METADATA: i64 = 0;
/// The type of events with constants.
const CHECKPOINT: i64 = 1;

/// A part of a recording that can be read without the others.
pub(super) struct Chunk<'a> {
    /// The position of the chunk in the file.
    pub at: usize,
    /// All bytes, the header included.
    pub bytes: &'a [u8],
    /// Whether bytes are missing at the end.
    pub is_cut: bool,
    /// The encoding of whole numbers.
    pub integers: Integers,
    /// The clock.
    pub clock: Clock,
    /// The length in nanoseconds.
    pub duration: u64,
}

/// The clock of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The start in nanoseconds since the Unix epoch.
    pub start: u64,
    start_ticks: i64,
    ticks_per_second: i64,
}

impl Clock {
    /// Returns the nanoseconds of some ticks, or `None` if the clock has no frequency.
    fn nanoseconds(&self, ticks: i128) -> Option<i128> {
        let frequency = i128::from(self.ticks_per_second);
        (frequency > 0).then(|| ticks * 1_000_000_000 / frequency)
    }

    /// Returns a length in nanoseconds.
    pub(super) fn length(&self, ticks: i64) -> Option<i64> {
        i64::try_from(self.nanoseconds(ticks.into())?).ok()
    }

    /// Returns a time in nanoseconds since the Unix epoch.
    pub(super) fn time(&self, ticks: i64) -> Option<u64> {
        let since_start = self.nanoseconds(i128::from(ticks) - i128::from(self.start_ticks))?;
        u64::try_from(i128::from(self.start) + since_start).ok()
    }
}

impl<'a> Chunk<'a> {
    /// Reads the header of the chunk at a position of a file. A recorder writes the size last. A
    /// chunk without one, or with one beyond the file, reaches to the end of the file.
    pub(super) fn read(file: &'a [u8], at: usize) -> Result<Self> {
        let rest = file.get(at..).unwrap_or_default();
        let header = rest.get(..HEADER_SIZE);
        let header = header.filter(|header| header.starts_with(MAGIC));
        let header = header.ok_or_else(|| no_chunk(at))?;
        let mut cursor = Cursor::new(header, Integers::Fixed);
        let mut numbers = [0; 9];
        // The magic, and the version of two shorts.
        for number in numbers.iter_mut().take(2) {
            *number = cursor.int().ok_or_else(|| no_chunk(at))?;
        }
        let [_, version, ..] = numbers;
        if version >> 16 != 2 {
            return Err(malformed(format!(
                "the chunk at byte {at:#x} has format version {}, and only version 2 of Java 9 and later is \
                 read",
                version >> 16
            )));
        }
        for number in numbers.iter_mut().skip(2) {
            *number = cursor.long().ok_or_else(|| no_chunk(at))?;
        }
        let [_, _, size, _, _, start, duration, start_ticks, ticks_per_second] = numbers;
        let size = usize::try_from(size).ok().filter(|size| *size >= HEADER_SIZE);
        let bytes = size.and_then(|size| rest.get(..size));
        let is_compressed = header.last().is_some_and(|flags| flags & 1 != 0);
        Ok(Self {
            at,
            bytes: bytes.unwrap_or(rest),
            is_cut: bytes.is_none(),
            integers: match is_compressed {
                true => Integers::Compressed,
                false => Integers::Fixed,
            },
            clock: Clock {
                start: u64::try_from(start).unwrap_or(0),
                start_ticks,
                ticks_per_second,
            },
            duration: u64::try_from(duration).unwrap_or(0),
        })
    }

    /// Returns the position after the chunk in the file.
    pub(super) fn end(&self) -> usize {
        self.at + self.bytes.len()
    }

    /// Returns the start of the chunk's bytes.
    pub(super) fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.bytes, self.integers)
    }

    /// Returns the records of the chunk.
    pub(super) fn records(&self) -> Records<'a> {
        Records {
            rest: self.cursor().moved_to(HEADER_SIZE),
        }
    }
}

fn no_chunk(at: usize) -> Error {
    malformed(format!(
        "there is no chunk at byte {at:#x}; the recording is damaged or cut"
    ))
}

/// A record of a chunk, without its size and type.
pub(super) enum Record<'a> {
    /// The types of all values.
    Metadata(Cursor<'a>),
    /// Constants.
    Checkpoint(Cursor<'a>),
    /// An event of a type.
    Event(i64, Cursor<'a>),
    /// The position of bytes that are no record. This is the last one.
    Damaged(usize),
}

/// The records of a chunk, in their order.
pub(super) struct Records<'a> {
    /// `None` after the last one.
    rest: Option<Cursor<'a>>,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let start = self.rest.take()?;
        if start.remaining() == 0 {
            return None;
        }
        match read_record(start) {
            Some((record, rest)) => {
                self.rest = Some(rest);
                Some(record)
            }
            None => Some(Record::Damaged(start.position())),
        }
    }
}

/// Returns a record and the position after it.
fn read_record(start: Cursor<'_>) -> Option<(Record<'_>, Cursor<'_>)> {
    let mut cursor = start;
    let size = usize::try_from(cursor.int()?).ok()?;
    let kind = cursor.long()?;
    let end = start.position().checked_add(size)?;
    let content = cursor.ending_at(end)?;
    let record = match kind {
        METADATA => Record::Metadata(content),
        CHECKPOINT => Record::Checkpoint(content),
        kind => Record::Event(kind, content),
    };
    Some((record, start.moved_to(end)?))
}
