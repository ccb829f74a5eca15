//! The records of the kernel in a ring buffer.

use crate::Error;
use crate::cursor::Cursor;
use crate::sample_id::{SampleId, SampleType};
use crate::switch::{self, ContextSwitch, Direction};
use backtrail_pt::{Avma, BuildId, FileOffset, Nanos, Pid, Tid};

/// `PERF_RECORD_MISC_COMM_EXEC`. The bit has other meanings in other records.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_FORK_EXEC`: perf made the record for a running process.
const MISC_FORK_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_MMAP_BUILD_ID`.
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
/// `PERF_RECORD_MISC_CPUMODE_MASK` and `PERF_RECORD_MISC_USER`.
const MISC_CPUMODE: u16 = 7;
const MISC_USER: u16 = 2;
/// `PROT_EXEC`.
const PROT_EXEC: u32 = 4;

/// The header and body of a record in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// `perf_event_header.type`.
    pub kind: u32,
    /// `perf_event_header.misc`.
    pub misc: u16,
    /// The bytes after the header.
    pub body: &'a [u8],
    /// The position of the record, for messages.
    pub offset: u64,
}

/// A record with its `sample_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The content.
    pub event: RecordEvent,
    /// The source and time of the record.
    pub id: SampleId,
}

/// The content of a record. Types without information about a trace are not parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordEvent {
    /// `PERF_RECORD_MMAP`, `PERF_RECORD_MMAP2`: memory was mapped.
    Mmap(Mmap),
    /// `PERF_RECORD_COMM`: a thread has a new name.
    Comm {
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// Its name.
        name: String,
        /// Whether the name comes from `execve`, which removes all earlier mappings of the process.
        exec: bool,
    },
    /// `PERF_RECORD_FORK`: a thread or process started.
    Fork {
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The parent process.
        parent: Pid,
        /// Whether a new process has the mappings of its parent. perf describes running processes
        /// by records of this type, too, which do not say so.
        copies_mappings: bool,
    },
    /// `PERF_RECORD_EXIT`: a thread ended.
    Exit {
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// `PERF_RECORD_ITRACE_START`: tracing of a thread began.
    ItraceStart {
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// `PERF_RECORD_AUX`: data was added to the AUX buffer.
    Aux {
        /// The position in the stream.
        offset: u64,
        /// The size in bytes.
        size: u64,
        /// The state of the data.
        flags: AuxFlags,
    },
    /// `PERF_RECORD_SWITCH`, `PERF_RECORD_SWITCH_CPU_WIDE`: a context switch. The first type does
    /// not report the other task, whose ids are then 0.
    Switch(ContextSwitch),
    /// `PERF_RECORD_LOST`: records were dropped.
    Lost {
        /// The number of dropped records.
        count: u64,
    },
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mmap {
    /// The process.
    pub pid: Pid,
    /// The start address.
    pub start: Avma,
    /// The size in bytes.
    pub size: u64,
    /// The file offset at `start`.
    pub offset: FileOffset,
    /// The file path, or a name in brackets.
    pub path: String,
    /// The build id of the file, if perf recorded it.
    pub build_id: Option<BuildId>,
    /// The file, where there is no build id.
    pub file: Option<MappedFile>,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether it is in user space.
    pub user: bool,
}

/// The file of a mapping, as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The major number of its device.
    pub major: u32,
    /// The minor number of its device.
    pub minor: u32,
    /// Its inode.
    pub inode: u64,
    /// The generation of the inode, which differs if a removed file had the same one. 0: unknown.
    pub generation: u64,
}

impl MappedFile {
    /// Returns whether two mappings may be of one file.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        let generations = [self.generation, other.generation];
        (self.major, self.minor, self.inode) == (other.major, other.minor, other.inode)
            && (generations.contains(&0) || self.generation == other.generation)
    }
}

/// `PERF_AUX_FLAG_*`: the state of AUX data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuxFlags(pub u64);

impl AuxFlags {
    /// Returns whether the buffer was full, so that data after this piece was lost.
    #[must_use]
    pub fn truncated(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether the buffer is in overwrite (snapshot) mode.
    #[must_use]
    pub fn overwrite(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns whether the data has gaps, because a hypervisor or another user had the hardware.
    #[must_use]
    pub fn partial(self) -> bool {
        self.0 & 4 != 0
    }

    /// Returns whether two users of the hardware collided.
    #[must_use]
    pub fn collision(self) -> bool {
        self.0 & 8 != 0
    }
}

impl Record {
    /// Parses a record of an event with `sample_type`, or returns `None` for types that are not
    /// parsed.
    ///
    /// # Errors
    /// Fails if the record is too short for its type.
    pub fn parse(raw: &RawRecord<'_>, sample_type: SampleType) -> Result<Option<Self>, Error> {
        let (what, parse): (_, ParseEvent) = match raw.kind {
            1 => ("PERF_RECORD_MMAP", mmap),
            2 => ("PERF_RECORD_LOST", lost),
            3 => ("PERF_RECORD_COMM", comm),
            4 => ("PERF_RECORD_EXIT", exit),
            7 => ("PERF_RECORD_FORK", fork),
            10 => ("PERF_RECORD_MMAP2", mmap2),
            11 => ("PERF_RECORD_AUX", aux),
            12 => ("PERF_RECORD_ITRACE_START", itrace_start),
            14 => ("PERF_RECORD_SWITCH", switch_own),
            switch::SWITCH_CPU_WIDE => ("PERF_RECORD_SWITCH_CPU_WIDE", switch_cpu_wide),
            _ => return Ok(None),
        };
        let (fields, id) = SampleId::split(raw.body, sample_type, what, raw.offset)?;
        let event = parse(&mut Cursor::new(fields, what, raw.offset), raw.misc, &id)?;
        Ok(Some(Self { event, id }))
    }
}

type ParseEvent = fn(&mut Cursor<'_>, u16, &SampleId) -> Result<RecordEvent, Error>;

fn ids(cursor: &mut Cursor<'_>) -> Result<(Pid, Tid), Error> {
    Ok((Pid(cursor.u32()?), Tid(cursor.u32()?)))
}

/// Reads a name that is padded with NULs to a multiple of 8 bytes.
fn name(cursor: &Cursor<'_>) -> String {
    let bytes = cursor.rest().split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads the common start of both mapping records. The other fields describe code in an unnamed
/// file.
fn mapping(cursor: &mut Cursor<'_>, misc: u16) -> Result<Mmap, Error> {
    let (pid, _) = ids(cursor)?;
    Ok(Mmap {
        pid,
        start: Avma(cursor.u64()?),
        size: cursor.u64()?,
        offset: FileOffset(cursor.u64()?),
        path: String::new(),
        build_id: None,
        file: None,
        executable: true,
        user: misc & MISC_CPUMODE == MISC_USER,
    })
}

fn mmap(cursor: &mut Cursor<'_>, misc: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    const MISC_MMAP_DATA: u16 = 1 << 13;
    let mut mmap = mapping(cursor, misc)?;
    mmap.executable = misc & MISC_MMAP_DATA == 0;
    mmap.path = name(cursor);
    Ok(RecordEvent::Mmap(mmap))
}

fn mmap2(cursor: &mut Cursor<'_>, misc: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    let mut mmap = mapping(cursor, misc)?;
    // Either the build id with its length, or device and inode.
    let (len, union) = (cursor.u8()?, cursor.bytes(23)?);
    if misc & MISC_MMAP_BUILD_ID != 0 {
        mmap.build_id = union.get(3..3 + usize::from(len)).and_then(BuildId::new);
    } else {
        mmap.file = file(len, union);
    }
    mmap.executable = cursor.u32()? & PROT_EXEC != 0;
    let _flags = cursor.u32()?;
    mmap.path = name(cursor);
    Ok(RecordEvent::Mmap(mmap))
}

/// Returns the file of `PERF_RECORD_MMAP2`; `None`: there is no file.
fn file(first: u8, rest: &[u8]) -> Option<MappedFile> {
    let bytes: Vec<u8> = std::iter::once(first).chain(rest.iter().copied()).collect();
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let file = MappedFile {
        major: word(0)?,
        minor: word(4)?,
        inode: long(8)?,
        generation: long(16)?,
    };
    (file.inode != 0).then_some(file)
}

fn comm(cursor: &mut Cursor<'_>, misc: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    let (pid, tid) = ids(cursor)?;
    Ok(RecordEvent::Comm {
        pid,
        tid,
        name: name(cursor),
        exec: misc & MISC_COMM_EXEC != 0,
    })
}

fn fork(cursor: &mut Cursor<'_>, misc: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    let (pid, parent, tid) = (Pid(cursor.u32()?), Pid(cursor.u32()?), Tid(cursor.u32()?));
    Ok(RecordEvent::Fork {
        pid,
        tid,
        parent,
        copies_mappings: misc & MISC_FORK_EXEC == 0,
    })
}

fn exit(cursor: &mut Cursor<'_>, _: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    let (pid, _, tid) = (Pid(cursor.u32()?), cursor.u32()?, Tid(cursor.u32()?));
    Ok(RecordEvent::Exit { pid, tid })
}

fn itrace_start(cursor: &mut Cursor<'_>, _: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    ids(cursor).map(|(pid, tid)| RecordEvent::ItraceStart { pid, tid })
}

fn aux(cursor: &mut Cursor<'_>, _: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    Ok(RecordEvent::Aux {
        offset: cursor.u64()?,
        size: cursor.u64()?,
        flags: AuxFlags(cursor.u64()?),
    })
}

fn lost(cursor: &mut Cursor<'_>, _: u16, _: &SampleId) -> Result<RecordEvent, Error> {
    cursor.u64()?;
    Ok(RecordEvent::Lost { count: cursor.u64()? })
}

fn switch_own(cursor: &mut Cursor<'_>, misc: u16, id: &SampleId) -> Result<RecordEvent, Error> {
    switch_event(cursor, switch::direction(misc), id, (Pid(0), Tid(0)))
}

fn switch_cpu_wide(cursor: &mut Cursor<'_>, misc: u16, id: &SampleId) -> Result<RecordEvent, Error> {
    let other = ids(cursor)?;
    switch_event(cursor, switch::direction(misc), id, other)
}

fn switch_event(
    cursor: &Cursor<'_>,
    direction: Direction,
    id: &SampleId,
    (next_prev_pid, next_prev_tid): (Pid, Tid),
) -> Result<RecordEvent, Error> {
    let (Some(pid), Some(tid), Some(Nanos(time))) = (id.pid, id.tid, id.time) else {
        return Err(cursor.invalid("it has neither thread nor time"));
    };
    Ok(RecordEvent::Switch(ContextSwitch {
        time: Nanos(time),
        pid,
        tid,
        direction,
        next_prev_pid,
        next_prev_tid,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(words: &[u64], text: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().copied().flat_map(u64::to_le_bytes).collect();
        bytes.extend(text.bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn parse(kind: u32, misc: u16, body: &[u8]) -> Result<Option<Record>, Error> {
        Record::parse(
            &RawRecord {
                kind,
                misc,
                body,
                offset: 0,
            },
            SampleType(0b110),
        )
    }

    #[test]
    fn mmap_with_build_id_is_parsed() {
        let id = [0x0000_0014_u64, 1, 2];
        let mut words = vec![7 | 8 << 32, 0x40_0000, 0x1000, 0x2000];
        words.extend(id);
        words.push(PROT_EXEC.into());
        let mut bytes = body(&words, "/bin/demo");
        bytes.extend(body(&[7 | 8 << 32, 99], ""));
        let record = parse(10, MISC_USER | MISC_MMAP_BUILD_ID, &bytes)
            .unwrap()
            .unwrap();
        let RecordEvent::Mmap(mmap) = record.event else {
            unreachable!("{record:?}")
        };
        assert_eq!(
            (mmap.path.as_str(), mmap.start, mmap.executable),
            ("/bin/demo", Avma(0x40_0000), true)
        );
        assert_eq!((mmap.build_id.unwrap().as_bytes().len(), mmap.file), (20, None));
        assert_eq!(record.id.time, Some(Nanos(99)));
        for end in 0..56 {
            assert!(parse(10, MISC_USER, &bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_mapping_with_device_and_inode_is_read() {
        let mut words = vec![7 | 8 << 32, 0x40_0000, 0x1000, 0x2000];
        words.extend([8 | 1 << 32, 0x1234_5678_9abc, 77, PROT_EXEC.into()]);
        let mut bytes = body(&words, "/bin/demo");
        bytes.extend(body(&[7 | 8 << 32, 99], ""));
        let record = parse(10, MISC_USER, &bytes).unwrap().unwrap();
        let RecordEvent::Mmap(mmap) = record.event else {
            unreachable!("{record:?}")
        };
        let file = MappedFile {
            major: 8,
            minor: 1,
            inode: 0x1234_5678_9abc,
            generation: 77,
        };
        assert_eq!(
            (mmap.build_id, mmap.file, mmap.executable),
            (None, Some(file), true)
        );
        let of = |inode, generation| MappedFile {
            inode,
            generation,
            ..file
        };
        let same = [of(file.inode, 78), of(file.inode, 0), of(9, 77), file].map(|other| file.may_be(&other));
        assert_eq!(same, [false, true, false, true]);
    }

    #[test]
    fn synthesized_fork_copies_no_mappings() {
        let bytes = body(&[3 | 4 << 32, 5 | 6 << 32, 0, 1 | 2 << 32, 50], "");
        let copies = [0, MISC_FORK_EXEC].map(|misc| {
            let record = parse(7, misc, &bytes).unwrap().unwrap();
            let RecordEvent::Fork {
                pid,
                parent,
                tid,
                copies_mappings,
            } = record.event
            else {
                unreachable!("{record:?}")
            };
            assert_eq!((pid, parent, tid), (Pid(3), Pid(4), Tid(5)));
            copies_mappings
        });
        assert_eq!(copies, [true, false]);
    }

    #[test]
    fn switch_thread_comes_from_the_sample_id() {
        let bytes = body(&[3 | 4 << 32, 1 | 2 << 32, 50], "");
        let record = parse(15, switch::MISC_SWITCH_OUT, &bytes).unwrap().unwrap();
        let expected = ContextSwitch {
            time: Nanos(50),
            pid: Pid(1),
            tid: Tid(2),
            direction: Direction::Out { preempted: false },
            next_prev_pid: Pid(3),
            next_prev_tid: Tid(4),
        };
        assert_eq!(record.event, RecordEvent::Switch(expected));
        assert!(matches!(parse(99, 0, &bytes), Ok(None)));
    }
}
