//! Heap records: calls of allocator functions that the collector noted by uprobes.
//!
//! A bundle with heap records states version [`RECORDS`](crate::heap::RECORDS) in its metadata
//! ([`Meta::heap_events`](crate::manifest::Meta::heap_events)), and has them in the file [`FILE`].
//! All numbers are little-endian, and all times are nanoseconds of `CLOCK_MONOTONIC`:
//!
//! | offset | contents |
//! |---|---|
//! | 0 | `BTHEAP`, and the version in 16 bits |
//! | 8 | process and number of gaps, in 32 bits each |
//! | 16 | number of records, begin, end, time zero, offset of perf's clock, 1 if that is known |
//! | 64 | the gaps, each with begin, end and number of lost calls |
//! | then | the records of 256 bytes each, as in [`HeapRecord`] |
//!
//! Four unused bytes follow the thread of a record, and four its number of words.

use crate::heap::{AllocatorFunction, RECORDS};
use crate::{Bundle, BundlePath, Error, Result, SharedBytes};
use backtrail_pt::{Avma, Pid, Tid};

/// The file of the records.
pub const FILE: &str = "heap.records";
/// The maximum number of records of a file.
pub const MAX_RECORDS: u64 = 1 << 20;
/// The maximum number of gaps of a file.
pub const MAX_GAPS: usize = 1 << 12;
/// The maximum number of words of the caller's stack.
pub const STACK_WORDS: usize = 22;
/// The size of a record in the file and in memory.
pub const RECORD_SIZE: usize = 256;

/// The version of the file.
const VERSION: u16 = 1;
const MAGIC: &[u8; 6] = b"BTHEAP";
const HEADER_SIZE: usize = 64;
const GAP_SIZE: usize = 24;
/// The offset of the stack in a record.
const STACK_AT: usize = 80;

/// A call of an allocator function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapRecord {
    /// The time of the entry.
    pub began: u64,
    /// The time of the return. Of a call that frees: the entry.
    pub ended: u64,
    /// The block that it frees or resizes, or else the size in bytes.
    pub argument: u64,
    /// The new size of a block that it resizes.
    pub size: u64,
    /// The returned block; 0: it failed, or returns none.
    pub result: u64,
    /// The return address.
    pub caller: Avma,
    /// The caller's stack pointer after the return.
    pub sp: u64,
    /// The caller's frame pointer register.
    pub bp: u64,
    /// The thread.
    pub tid: Tid,
    /// The function.
    pub function: AllocatorFunction,
    /// The number of words in `stack`.
    pub words: u16,
    /// The words of the stack from `sp` on.
    pub stack: [u64; STACK_WORDS],
}

impl HeapRecord {
    /// Returns the known words of the stack.
    #[must_use]
    pub fn stack(&self) -> &[u64] {
        self.stack.get(..usize::from(self.words)).unwrap_or_default()
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let numbers = [
            self.began,
            self.ended,
            self.argument,
            self.size,
            self.result,
            self.caller.0,
            self.sp,
            self.bp,
        ];
        numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
        to.extend(self.tid.0.to_le_bytes());
        to.extend([0; 4]);
        to.extend((self.function as u16).to_le_bytes());
        to.extend(self.words.to_le_bytes());
        to.extend([0; 4]);
        self.stack.iter().for_each(|word| to.extend(word.to_le_bytes()));
    }

    /// Parses a record; `None`: it is malformed.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let long = |at: usize| number(bytes, 8 * at);
        let parts = number(bytes, 72)?;
        let (function, words) = (parts as u16, (parts >> 16) as u16);
        let mut stack = [0; STACK_WORDS];
        for (at, word) in stack.iter_mut().enumerate() {
            *word = number(bytes, STACK_AT + 8 * at)?;
        }
        Some(Self {
            began: long(0)?,
            ended: long(1)?,
            argument: long(2)?,
            size: long(3)?,
            result: long(4)?,
            caller: Avma(long(5)?),
            sp: long(6)?,
            bp: long(7)?,
            tid: Tid(long(8)? as u32),
            function: *AllocatorFunction::ALL.get(usize::from(function))?,
            words: (usize::from(words) <= STACK_WORDS).then_some(words)?,
            stack,
        })
        .filter(|record| record.began <= record.ended)
    }
}

/// An interval in which calls were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapGap {
    /// The calls began after this time.
    pub from: u64,
    /// The last one was lost at this time.
    pub to: u64,
    /// Their number.
    pub lost: u64,
}

/// The interval of the records, and what is missing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapInterval {
    /// The process.
    pub pid: Pid,
    /// Calls that began before this time are unknown.
    pub since: u64,
    /// Calls that began after this time are unknown.
    pub until: u64,
    /// The time called 0: the crash, or the end.
    pub zero: u64,
    /// The time of perf's clock minus that of `CLOCK_MONOTONIC`, at `zero`.
    pub perf_offset: Option<i64>,
    /// The gaps, in order.
    pub gaps: Vec<HeapGap>,
}

/// The heap records of a process.
#[derive(Clone, Debug)]
pub struct HeapRecords {
    /// The interval of the records.
    pub interval: HeapInterval,
    records: SharedBytes,
}

impl HeapRecords {
    /// Encodes a file.
    ///
    /// # Errors
    /// Fails if there are too many records or gaps.
    pub fn encode(interval: &HeapInterval, records: &[HeapRecord]) -> Result<Vec<u8>> {
        let size = HEADER_SIZE + GAP_SIZE * interval.gaps.len() + RECORD_SIZE * records.len();
        let mut out = Vec::with_capacity(size);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(interval.pid.0.to_le_bytes());
        out.extend((interval.gaps.len() as u32).to_le_bytes());
        let offset = interval.perf_offset.unwrap_or_default();
        for number in [
            records.len() as u64,
            interval.since,
            interval.until,
            interval.zero,
            offset.cast_unsigned(),
            u64::from(interval.perf_offset.is_some()),
        ] {
            out.extend(number.to_le_bytes());
        }
        for gap in &interval.gaps {
            [gap.from, gap.to, gap.lost]
                .iter()
                .for_each(|number| out.extend(number.to_le_bytes()));
        }
        records.iter().for_each(|record| record.encode(&mut out));
        match records.len() as u64 <= MAX_RECORDS && interval.gaps.len() <= MAX_GAPS {
            true => Ok(out),
            false => Err(Error::Usage("there are too many heap records".to_owned())),
        }
    }

    /// Parses and checks a file.
    ///
    /// # Errors
    /// Fails if it is malformed, or of another version.
    pub fn parse(bytes: &SharedBytes) -> Result<Self> {
        let refused = |problem: &str| Error::malformed(FILE, problem);
        let (Some(&head), true) = (bytes.first_chunk::<HEADER_SIZE>(), bytes.starts_with(MAGIC)) else {
            return Err(refused("this is no file of heap records"));
        };
        let long = |at: usize| number(&head, at).unwrap_or_default();
        let version = (long(0) >> 48) as u16;
        if version != VERSION {
            let problem = format!("the heap records have format {version}; use a newer Backtrail");
            return Err(Error::unsupported(FILE, problem));
        }
        let (gaps, count) = ((long(8) >> 32) as usize, long(16));
        if gaps > MAX_GAPS || count > MAX_RECORDS {
            return Err(refused("it has too many records or gaps"));
        }
        let records_at = HEADER_SIZE + GAP_SIZE * gaps;
        let end = records_at + RECORD_SIZE * count as usize;
        let records = bytes
            .slice(records_at as u64..end as u64)
            .filter(|_| end == bytes.len())
            .ok_or_else(|| refused("it has another size than its header states"))?;
        let (since, until, zero) = (long(24), long(32), long(40));
        let interval = HeapInterval {
            pid: Pid(long(8) as u32),
            since,
            until,
            zero,
            perf_offset: (long(56) != 0).then(|| long(48).cast_signed()),
            gaps: parse_gaps(bytes, gaps).ok_or_else(|| refused("its gaps are not in order"))?,
        };
        if since > until {
            return Err(refused("its end is before its begin"));
        }
        let all = records.chunks_exact(RECORD_SIZE).map(HeapRecord::parse);
        if all
            .into_iter()
            .any(|record| record.is_none_or(|record| record.ended > until))
        {
            return Err(refused("a record is malformed"));
        }
        Ok(Self { interval, records })
    }

    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len() / RECORD_SIZE
    }

    /// Returns whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns a record by its number.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<HeapRecord> {
        let at = index.checked_mul(RECORD_SIZE)?;
        HeapRecord::parse(self.records.get(at..)?.get(..RECORD_SIZE)?)
    }

    /// Returns all records.
    pub fn iter(&self) -> impl Iterator<Item = HeapRecord> + '_ {
        self.records
            .chunks_exact(RECORD_SIZE)
            .filter_map(HeapRecord::parse)
    }

    /// Returns the file without the stacks of callers.
    pub(crate) fn without_stacks(&self) -> Result<Vec<u8>> {
        let plain = |record: HeapRecord| HeapRecord {
            words: 0,
            stack: [0; STACK_WORDS],
            ..record
        };
        Self::encode(&self.interval, &self.iter().map(plain).collect::<Vec<_>>())
    }
}

impl Bundle {
    /// Returns the heap records of the bundle, if it states that it has them.
    ///
    /// # Errors
    /// Fails if the file is missing or malformed, or of another version.
    pub fn heap_records(&self) -> Result<Option<HeapRecords>> {
        if self.manifest().meta.heap_events != Some(RECORDS) {
            return Ok(None);
        }
        HeapRecords::parse(&self.bytes(&BundlePath::new(FILE)?)?).map(Some)
    }
}

fn parse_gaps(bytes: &[u8], count: usize) -> Option<Vec<HeapGap>> {
    let gap = |index: usize| {
        let at = HEADER_SIZE + GAP_SIZE * index;
        Some(HeapGap {
            from: number(bytes, at)?,
            to: number(bytes, at + 8)?,
            lost: number(bytes, at + 16)?,
        })
    };
    let gaps = (0..count).map(gap).collect::<Option<Vec<_>>>()?;
    let mut pairs = gaps.iter().zip(gaps.iter().skip(1));
    let is_ordered = gaps.iter().all(|gap| gap.from <= gap.to) && pairs.all(|(one, next)| one.to <= next.to);
    is_ordered.then_some(gaps)
}

/// Returns the 64-bit number at an offset.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests;
