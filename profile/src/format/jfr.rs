//! Recordings of the JDK Flight Recorder (JFR), as async-profiler and the JVM write them.
//!
//! A recording has chunks. Each has a header, the types of its events, constants such as stack
//! traces, and events. The format has no specification. It is as the classes of
//! `jdk.jfr.internal.consumer` in OpenJDK read it.

mod chunk;
mod chunk_reader;
mod cursor;
mod info;
mod metadata;
mod names;
mod sample_kinds;
mod stacks;
#[cfg(test)]
mod tests;
mod values;

use crate::profile::Profile;
use crate::sample::UnixNanos;
use crate::table::Table;
use crate::{Error, ReadLimits, Result};
use chunk::Chunk;
use chunk_reader::{ChunkReader, Damage};
use info::RecordingInfo;
use sample_kinds::rank;

/// The first bytes of a chunk.
const MAGIC: &[u8] = b"FLR\0";
/// The largest accepted recording in bytes.
const MAX_BYTES: usize = 1 << 32;
/// The most notes about chunks.
const MAX_NOTES: usize = 8;

/// Returns whether a file is a recording.
#[must_use]
pub fn is_jfr(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads the samples of all chunks.
///
/// Processor time, wall-clock time, allocations, locks and native memory become events of their
/// own, with the weights that the recorder's settings give. The states of threads and the classes
/// of objects and locks are the labels `state` and `class`. Complete records of damaged or cut
/// chunks are used, and [`Profile::notes`] lists what is missing.
///
/// # Errors
///
/// [`Error::Malformed`] if no chunk can be read. [`Error::TooLarge`] beyond 4 GiB.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    read_within(bytes, &ReadLimits::FILE)
}

/// Reads the samples of all chunks within limits.
///
/// # Errors
///
/// As [`read`], and those of the limits.
pub fn read_within(bytes: &[u8], limits: &ReadLimits) -> Result<Profile> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::TooLarge {
            limit: MAX_BYTES as u64,
        });
    }
    let mut reader = Reader {
        profile: limits.profile(),
        ..Reader::default()
    };
    let mut at = 0;
    while at < bytes.len() {
        match Chunk::read(bytes, at) {
            Ok(chunk) => {
                at = chunk.end();
                reader.add(&chunk, limits)?;
            }
            Err(error) if reader.chunks == 0 => return Err(error),
            Err(_) => {
                let missing = bytes.len() - at;
                reader.note(format!(
                    "the last {missing} bytes of the recording are no chunk, and are not read"
                ));
                break;
            }
        }
    }
    reader.finish()
}

fn malformed(problem: impl Into<String>) -> Error {
    Error::Malformed {
        format: "JFR",
        problem: problem.into(),
    }
}

/// The profile that is built of the chunks.
#[derive(Default)]
struct Reader {
    profile: Profile,
    info: RecordingInfo,
    damage: Damage,
    /// The number of chunks.
    chunks: u64,
    /// The number of chunks whose events were read.
    read_chunks: u64,
    /// The number of notes about chunks.
    notes: usize,
    end: u64,
}

impl Reader {
    fn add(&mut self, chunk: &Chunk<'_>, limits: &ReadLimits) -> Result<()> {
        self.chunks += 1;
        let (number, at) = (self.chunks, chunk.at);
        let Some(mut reader) = ChunkReader::new(chunk, &mut self.damage) else {
            self.note(format!(
                "chunk {number} at byte {at:#x} does not describe its events, and is not read"
            ));
            return Ok(());
        };
        self.read_chunks += 1;
        if let Some(damaged_at) = reader.damaged_at {
            let missing = chunk.bytes.len() - damaged_at;
            let at = at + damaged_at;
            self.note(format!(
                "chunk {number} is damaged or cut at byte {at:#x}, and its last {missing} bytes are not read"
            ));
        } else if chunk.is_cut {
            self.note(format!(
                "chunk {number} is incomplete: the recorder did not end it, or the file is cut"
            ));
        }
        let start = UnixNanos(chunk.clock.start);
        if start.0 != 0 {
            self.profile.start = Some(self.profile.start.map_or(start, |known| known.min(start)));
            self.end = self.end.max(start.0.saturating_add(chunk.duration));
        }
        reader.read_info(&mut self.info, &mut self.damage);
        reader.add_samples(&self.info, &mut self.profile, &mut self.damage, limits)?;
        if reader.is_exhausted() {
            self.note(format!(
                "chunk {number} has more nested types or longer names than its size permits, and parts of \
                 it are not read"
            ));
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        self.notes += 1;
        if self.notes <= MAX_NOTES {
            self.profile.notes.push(note);
        }
    }

    fn finish(mut self) -> Result<Profile> {
        if self.read_chunks == 0 {
            let reason = self.profile.notes.first();
            let reason = reason.map_or("it has no chunk", |note| note);
            return Err(malformed(format!(
                "the recording cannot be read: {reason}; stop the recording before it is read"
            )));
        }
        let more = self.notes.saturating_sub(MAX_NOTES);
        let counts = [
            (more as u64, "further chunks are damaged"),
            (
                self.damage.checkpoints,
                "checkpoints are damaged, so that names may be missing",
            ),
            (self.damage.events, "damaged events are left out"),
            (self.damage.stacks, "stack traces are missing or damaged"),
            (self.info.lost_bytes, "bytes of events were lost by the JVM"),
            (self.info.lost_samples, "samples were lost by the JVM"),
        ];
        for (count, problem) in counts.into_iter().filter(|(count, _)| *count > 0) {
            self.profile.notes.push(format!("{count} {problem}"));
        }
        let start = self.profile.start.map_or(0, |start| start.0);
        self.profile.duration = Some(self.end - start.min(self.end)).filter(|duration| *duration > 0);
        sort_events(&mut self.profile)?;
        Ok(self.profile)
    }
}

/// Sorts the events by rank, so that a report shows the most useful one by default.
fn sort_events(profile: &mut Profile) -> Result<()> {
    let mut order: Vec<_> = profile
        .events
        .iter()
        .map(|(id, event)| (id, event.clone()))
        .collect();
    order.sort_by_key(|(_, event)| rank(profile.text(event.name)));
    let mut events = Table::default();
    let mut ids = std::collections::HashMap::new();
    for (old, event) in order {
        ids.insert(old, events.intern(event)?);
    }
    for sample in &mut profile.samples {
        if let Some(new) = ids.get(&sample.event) {
            sample.event = *new;
        }
    }
    profile.events = events;
    Ok(())
}
