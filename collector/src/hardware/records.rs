//! Parses the kernel's records into history entries.

use super::counters::Counters;
use super::history::{HistoryEntry, HistoryEvent};
use super::world::{Change, ExecutableMapping, MappedFile};
use backtrail_perf::attr::SAMPLE_TYPE;
use backtrail_perf::kernel_code::KernelCode;
use backtrail_perf::record::{Mmap, RawRecord, Record, RecordEvent};
use backtrail_perf::ring;
use backtrail_perf::sample_id::SampleId;
use backtrail_process::beneath::FileId;
use backtrail_pt::{Cpu, Nanos, Pid, Tid};
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum number of shared names. A machine that maps new files without end must not exhaust
/// memory.
const MAX_FILES: usize = 32 << 10;

/// `PERF_RECORD_LOST_SAMPLES`.
const LOST_SAMPLES: u32 = 13;

/// File names, each stored once.
#[derive(Debug, Default)]
pub(super) struct FileTable(HashSet<Arc<MappedFile>>);

impl FileTable {
    pub(super) fn shared(&mut self, file: MappedFile) -> Arc<MappedFile> {
        if let Some(known) = self.0.get(&file) {
            return known.clone();
        }
        if self.0.len() >= MAX_FILES {
            // Names in use stay alive through their users.
            self.0.clear();
        }
        let file = Arc::new(file);
        self.0.insert(file.clone());
        file
    }
}

/// Parses the records from the ring of processor `cpu`.
pub(super) fn read(
    bytes: &[u8],
    cpu: Cpu,
    files: &mut FileTable,
    counters: &mut Counters,
    entries: &mut Vec<HistoryEntry>,
) {
    // A record without a timestamp gets the time of the previous one.
    let mut last = Nanos(0);
    for raw in ring::records(bytes) {
        let read = raw.and_then(|raw| one(&raw, files));
        match read {
            Ok(None) => {}
            Ok(Some((id, event))) => {
                last = id.time.unwrap_or(last);
                count(&event, counters);
                entries.push(HistoryEntry {
                    time: last,
                    cpu: id.cpu.unwrap_or(cpu),
                    event,
                });
            }
            Err(_) => counters.malformed += 1,
        }
        counters.records += 1;
    }
}

fn count(event: &HistoryEvent, counters: &mut Counters) {
    let HistoryEvent::Change(change) = event else {
        return;
    };
    match &**change {
        Change::Lost(count) => counters.lost = counters.lost.saturating_add(*count),
        Change::Trace(flags) => {
            counters.truncated += u64::from(flags.truncated());
            counters.partial += u64::from(flags.partial());
            counters.collided += u64::from(flags.collision());
        }
        _ => {}
    }
}

type ParsedRecord = Result<Option<(SampleId, HistoryEvent)>, backtrail_perf::Error>;

fn one(raw: &RawRecord<'_>, files: &mut FileTable) -> ParsedRecord {
    let change = |id, change| Ok(Some((id, HistoryEvent::Change(Box::new(change)))));
    if raw.kind == LOST_SAMPLES {
        return Ok(None);
    }
    if let Some((code, id)) = KernelCode::parse(raw, SAMPLE_TYPE)? {
        return change(id, Change::KernelCode(code));
    }
    let Some(Record { event, id }) = Record::parse(raw, SAMPLE_TYPE)? else {
        return Ok(None);
    };
    match event {
        RecordEvent::Mmap(mmap) if mmap.user && mmap.executable && is_process(mmap.pid) => {
            let (pid, mapped) = mapping(mmap, files);
            change(id, Change::Map(pid, mapped))
        }
        RecordEvent::Comm { pid, tid, name, exec } if is_process(pid) => {
            let name = name.into();
            change(id, Change::Comm { pid, tid, name, exec })
        }
        RecordEvent::Fork { pid, tid, parent, .. } if is_process(pid) => change(
            id,
            Change::Fork {
                pid,
                tid,
                parent,
                by: id.tid.unwrap_or(Tid(parent.0)),
            },
        ),
        RecordEvent::Exit { pid, tid } if is_process(pid) => change(id, Change::Exit { pid, tid }),
        RecordEvent::Aux { flags, .. } if flags.truncated() || flags.partial() || flags.collision() => {
            change(id, Change::Trace(flags))
        }
        RecordEvent::Switch(switch) => Ok(Some((id, HistoryEvent::Switch(switch)))),
        RecordEvent::Lost { count } => change(id, Change::Lost(count)),
        _ => Ok(None),
    }
}

/// Id 0 is the idle task, and -1 is a thread that has ended.
fn is_process(pid: Pid) -> bool {
    pid.0 != 0 && pid.0 != u32::MAX
}

fn mapping(mmap: Mmap, files: &mut FileTable) -> (Pid, ExecutableMapping) {
    let mapped = ExecutableMapping {
        start: mmap.start,
        size: mmap.size,
        offset: mmap.offset,
        file: files.shared(MappedFile {
            path: mmap.path,
            build_id: mmap.build_id,
            id: mmap.file.map(|file| FileId {
                device: (file.major, file.minor),
                inode: file.inode,
            }),
        }),
    };
    (mmap.pid, mapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = 8 * (words.len() as u64 + 1);
        let header = u64::from(kind) | size << 48;
        std::iter::once(&header)
            .chain(words)
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    /// Returns the trailer of a record: process 7, thread 8, a time, processor 3, an id.
    fn trailer(time: u64) -> [u64; 4] {
        [7 | 8 << 32, time, 3, 1]
    }

    fn read_all(bytes: &[u8]) -> (Vec<HistoryEntry>, Counters) {
        let (mut entries, mut counters) = (Vec::new(), Counters::default());
        read(
            bytes,
            Cpu(0),
            &mut FileTable::default(),
            &mut counters,
            &mut entries,
        );
        (entries, counters)
    }

    #[test]
    fn lost_records_and_trace_errors_are_counted() {
        let lost = [&[1, 5][..], &trailer(100)].concat();
        let aux = [&[0, 4096, 1 | 4 | 8][..], &trailer(200)].concat();
        // An overwritten buffer without an error is no event.
        let plain = [&[0, 4096, 2][..], &trailer(300)].concat();
        let bytes = [record(2, &lost), record(11, &aux), record(11, &plain)].concat();
        let (entries, counters) = read_all(&bytes);
        let expected = Counters {
            records: 3,
            lost: 5,
            truncated: 1,
            partial: 1,
            collided: 1,
            ..Counters::default()
        };
        assert_eq!(counters, expected);
        let found: Vec<_> = entries.iter().map(|entry| (entry.time.0, entry.cpu.0)).collect();
        assert_eq!(found, [(100, 3), (200, 3)]);
        assert!(entries[1].is_truncated() && !entries[0].is_truncated());
    }

    #[test]
    fn threads_without_process_are_skipped() {
        for pid in [0, u64::from(u32::MAX)] {
            let fork = [&[pid | 1 << 32, 2, 0][..], &trailer(1)].concat();
            assert_eq!(read_all(&record(7, &fork)).0, []);
        }
        let fork = [&[5 | 1 << 32, 6 | 2 << 32, 0][..], &trailer(1)].concat();
        assert_eq!(read_all(&record(7, &fork)).0.len(), 1);
    }

    proptest! {
        /// Any content of a ring is parsed or counted, and parsing ends.
        #[test]
        fn any_bytes_are_parsed_or_counted(
            kinds in prop::collection::vec((0u32..24, prop::collection::vec(any::<u64>(), 0..9)), 0..12),
            cut in 0usize..64,
        ) {
            let whole: Vec<u8> = kinds.iter().flat_map(|(kind, words)| record(*kind, words)).collect();
            let bytes = &whole[..whole.len().saturating_sub(cut)];
            let (entries, counters) = read_all(bytes);
            prop_assert!(entries.len() as u64 + counters.malformed <= counters.records);
            prop_assert!(counters.records <= kinds.len() as u64);
            let mut history = crate::hardware::SidebandHistory::new(1000, crate::hardware::World::default());
            history.add(entries);
            let _ = history.interval(Nanos(0), Nanos(u64::MAX));
        }
    }
}
