//! `PERF_RECORD_SAMPLE`: a sample with its call chain, last branches, registers and stack.
//!
//! Source: `enum perf_event_type` in `linux/perf_event.h`.

use crate::Error;
use crate::cursor::Cursor;
use crate::record::RawRecord;
use backtrail_pt::{Cpu, Nanos, Pid, Tid};

/// The type of the record.
pub const PERF_RECORD_SAMPLE: u32 = 9;

/// Bits of `perf_event_attr.sample_type`.
const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM_ID: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
const BRANCH_STACK: u64 = 1 << 11;
const REGS_USER: u64 = 1 << 12;
/// `PERF_SAMPLE_STACK_USER`: samples have a copy of the program's stack.
pub const STACK_USER: u64 = 1 << 13;
const IDENTIFIER: u64 = 1 << 16;

/// `PERF_FORMAT_*` bits of `perf_event_attr.read_format`.
const FORMAT_TOTAL_TIME_ENABLED: u64 = 1 << 0;
const FORMAT_TOTAL_TIME_RUNNING: u64 = 1 << 1;
const FORMAT_ID: u64 = 1 << 2;
const FORMAT_GROUP: u64 = 1 << 3;
const FORMAT_LOST: u64 = 1 << 4;

/// `PERF_SAMPLE_BRANCH_HW_INDEX` of
/// `perf_event_attr.branch_sample_type`.
const BRANCH_HW_INDEX: u64 = 1 << 17;

/// `PERF_CONTEXT_MAX`: entries of a call chain from here on are marks, not addresses.
pub const CONTEXT_MAX: u64 = -4095_i64 as u64;
/// `PERF_CONTEXT_KERNEL` and `PERF_CONTEXT_USER`.
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// The settings of an event that decide the layout of its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleLayout {
    /// `sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_regs_user`.
    pub user_registers: u64,
}

impl SampleLayout {
    /// Returns whether the id of the event is the first field.
    #[must_use]
    pub fn has_identifier(&self) -> bool {
        self.sample_type & IDENTIFIER != 0
    }
}

/// A sample, as far as its event was configured to have these parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The instruction pointer.
    pub ip: Option<u64>,
    /// The process.
    pub pid: Option<Pid>,
    /// The thread.
    pub tid: Option<Tid>,
    /// The time on perf's clock.
    pub time: Option<Nanos>,
    /// The processor.
    pub cpu: Option<Cpu>,
    /// The id of the event.
    pub id: Option<u64>,
    /// The number of events that the sample represents.
    pub period: Option<u64>,
    /// The call chain, the innermost address first.
    pub chain: Vec<ChainEntry>,
    /// The payload of a tracepoint, with padding.
    pub payload: Vec<u8>,
    /// The branches, the newest first.
    pub branches: Vec<BranchRecord>,
    /// The registers and the stack of the program, as they were when it entered the kernel or was
    /// interrupted. `None`: not sampled, or the thread runs no program.
    pub user: Option<UserState>,
}

/// The registers and the innermost part of the stack of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserState {
    /// Whether the program runs 32-bit code.
    pub is_32_bit: bool,
    /// The registers that the event asks for, in ascending order of their bits.
    pub registers: Vec<u64>,
    /// The bytes from the stack pointer upward.
    pub stack: Vec<u8>,
}

/// An address of a call chain. Those of callers are return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEntry {
    /// The address.
    pub address: u64,
    /// Whether the address is in the kernel or a hypervisor.
    pub is_kernel: bool,
}

/// `struct perf_branch_entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchRecord {
    /// The branch instruction.
    pub from: u64,
    /// The target.
    pub to: u64,
    /// Whether the target was mispredicted. `None`: the processor does not report it.
    pub is_mispredicted: Option<bool>,
    /// The cycles since the previous branch. 0: not reported.
    pub cycles: u16,
}

impl Sample {
    /// Parses the body of a `PERF_RECORD_SAMPLE`. Parts after the user stack are not read.
    ///
    /// # Errors
    ///
    /// Fails if the record is too short for its layout.
    pub fn parse(raw: &RawRecord<'_>, layout: &SampleLayout) -> Result<Self, Error> {
        let mut cursor = Cursor::new(raw.body, "PERF_RECORD_SAMPLE", raw.offset);
        let has = |bit| layout.sample_type & bit != 0;
        let mut sample = Self::default();
        if has(IDENTIFIER) {
            sample.id = Some(cursor.u64()?);
        }
        if has(IP) {
            sample.ip = Some(cursor.u64()?);
        }
        if has(TID) {
            (sample.pid, sample.tid) = (Some(Pid(cursor.u32()?)), Some(Tid(cursor.u32()?)));
        }
        if has(TIME) {
            sample.time = Some(Nanos(cursor.u64()?));
        }
        if has(ADDR) {
            cursor.u64()?;
        }
        if has(ID) {
            sample.id = Some(cursor.u64()?);
        }
        if has(STREAM_ID) {
            cursor.u64()?;
        }
        if has(CPU) {
            sample.cpu = Some(Cpu(cursor.u32()?));
            cursor.u32()?;
        }
        if has(PERIOD) {
            sample.period = Some(cursor.u64()?);
        }
        if has(READ) {
            skip_counters(&mut cursor, layout.read_format)?;
        }
        if has(CALLCHAIN) {
            sample.chain = chain(&mut cursor)?;
        }
        if has(RAW) {
            let size = cursor.u32()?;
            sample.payload = cursor.bytes(size as usize)?.to_vec();
        }
        if has(BRANCH_STACK) {
            sample.branches = branches(&mut cursor, layout.branch_sample_type)?;
        }
        if has(REGS_USER) {
            sample.user = registers(&mut cursor, layout.user_registers)?;
        }
        if has(STACK_USER) {
            let stack = user_stack(&mut cursor)?;
            if let Some(user) = &mut sample.user {
                user.stack = stack.to_vec();
            }
        }
        Ok(sample)
    }
}

/// Skips the counter values (`struct read_format`).
fn skip_counters(cursor: &mut Cursor<'_>, format: u64) -> Result<(), Error> {
    let words = |bits: u64| u64::from((format & bits).count_ones());
    let of_counter = 1 + words(FORMAT_ID | FORMAT_LOST);
    let times = words(FORMAT_TOTAL_TIME_ENABLED | FORMAT_TOTAL_TIME_RUNNING);
    let words = match format & FORMAT_GROUP {
        0 => of_counter.saturating_add(times),
        _ => cursor.u64()?.saturating_mul(of_counter).saturating_add(times),
    };
    let size = usize::try_from(words.saturating_mul(8)).unwrap_or(usize::MAX);
    cursor.bytes(size).map(drop)
}

/// Returns the next `count` structures of `size` bytes.
fn structures<'a>(
    cursor: &mut Cursor<'a>,
    count: u64,
    size: usize,
) -> Result<std::slice::ChunksExact<'a, u8>, Error> {
    let bytes = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(size));
    Ok(cursor.bytes(bytes.unwrap_or(usize::MAX))?.chunks_exact(size))
}

fn chain(cursor: &mut Cursor<'_>) -> Result<Vec<ChainEntry>, Error> {
    let count = cursor.u64()?;
    let mut chain = Vec::new();
    let mut is_kernel = false;
    for word in structures(cursor, count, 8)? {
        let address = word.try_into().map_or(0, u64::from_le_bytes);
        match address {
            CONTEXT_KERNEL => is_kernel = true,
            CONTEXT_USER => is_kernel = false,
            // Marks of hypervisors and guests.
            CONTEXT_MAX.. => is_kernel = true,
            address => chain.push(ChainEntry { address, is_kernel }),
        }
    }
    Ok(chain)
}

fn branches(cursor: &mut Cursor<'_>, branch_sample_type: u64) -> Result<Vec<BranchRecord>, Error> {
    let count = cursor.u64()?;
    if branch_sample_type & BRANCH_HW_INDEX != 0 {
        cursor.u64()?;
    }
    let entry = |bytes: &[u8]| {
        let word = |at: usize| {
            let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let flags = word(16);
        BranchRecord {
            from: word(0),
            to: word(8),
            // `mispred` and `predicted`: neither is set where they are not supported.
            is_mispredicted: match flags & 3 {
                1 => Some(true),
                2 => Some(false),
                _ => None,
            },
            cycles: (flags >> 4) as u16,
        }
    };
    Ok(structures(cursor, count, 24)?.map(entry).collect())
}

/// Reads the registers of a mask: the ABI, and the registers unless it is
/// `PERF_SAMPLE_REGS_ABI_NONE`.
fn registers(cursor: &mut Cursor<'_>, mask: u64) -> Result<Option<UserState>, Error> {
    const ABI_NONE: u64 = 0;
    const ABI_32: u64 = 1;
    let abi = cursor.u64()?;
    if abi == ABI_NONE {
        return Ok(None);
    }
    let words = structures(cursor, mask.count_ones().into(), 8)?;
    let registers = words.map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    Ok(Some(UserState {
        is_32_bit: abi == ABI_32,
        registers: registers.collect(),
        stack: Vec::new(),
    }))
}

/// Returns the bytes of the stack that the kernel could read.
fn user_stack<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Error> {
    let size = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
    if size == 0 {
        return Ok(&[]);
    }
    let bytes = cursor.bytes(size)?;
    let valid = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
    bytes
        .get(..valid)
        .ok_or_else(|| cursor.invalid("its stack is shorter than it says"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body: &[u8]) -> RawRecord<'_> {
        RawRecord {
            kind: PERF_RECORD_SAMPLE,
            misc: 0,
            body,
            offset: 0,
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Returns a layout with every part before the branches, and a body for it.
    fn full() -> (SampleLayout, Vec<u8>) {
        let layout = SampleLayout {
            sample_type: 0x1_3fff,
            read_format: FORMAT_GROUP | FORMAT_ID | FORMAT_TOTAL_TIME_ENABLED,
            branch_sample_type: BRANCH_HW_INDEX,
            user_registers: 1 << 6 | 1 << 7 | 1 << 8,
        };
        let mut body = bytes(&[
            7,
            0x401000,
            2 << 32 | 1,
            3,
            4,
            7,
            6,
            5,
            1000, // up to the period
            2,
            9,
            10,
            11,
            12,
            13, // the counters of a group of two
            4,
            CONTEXT_KERNEL,
            0xffff_ffff_8100_0000,
            CONTEXT_USER,
            0x401000,
        ]);
        body.extend([4, 0, 0, 0, 1, 2, 3, 4]);
        body.extend(bytes(&[2, 0, 0x10, 0x20, 1 | 33 << 4, 0x30, 0x40, 0]));
        body.extend(bytes(&[2, 0x7ffe, 0x7ff0, 0x401000, 16, 0x11, 0x22, 8]));
        (layout, body)
    }

    #[test]
    fn all_parts_are_in_kernel_order() {
        let (layout, body) = full();
        let sample = Sample::parse(&record(&body), &layout).unwrap();
        assert_eq!((sample.ip, sample.id), (Some(0x401000), Some(7)));
        assert_eq!((sample.pid, sample.tid), (Some(Pid(1)), Some(Tid(2))));
        assert_eq!((sample.time, sample.cpu), (Some(Nanos(3)), Some(Cpu(5))));
        assert_eq!(sample.period, Some(1000));
        let chain: Vec<_> = sample
            .chain
            .iter()
            .map(|entry| (entry.address, entry.is_kernel))
            .collect();
        assert_eq!(chain, [(0xffff_ffff_8100_0000, true), (0x401000, false)]);
        let branch = |from, to, is_mispredicted, cycles| BranchRecord {
            from,
            to,
            is_mispredicted,
            cycles,
        };
        assert_eq!(
            sample.branches,
            [branch(0x10, 0x20, Some(true), 33), branch(0x30, 0x40, None, 0)]
        );
        let user = UserState {
            is_32_bit: false,
            registers: vec![0x7ffe, 0x7ff0, 0x401000],
            stack: bytes(&[0x11]),
        };
        assert_eq!(sample.user, Some(user));
    }

    #[test]
    fn truncated_samples_are_errors() {
        let (layout, body) = full();
        for length in 0..body.len() {
            assert!(
                Sample::parse(&record(&body[..length]), &layout).is_err(),
                "{length}"
            );
        }
    }

    #[test]
    fn thread_without_a_program_has_no_registers() {
        let layout = SampleLayout {
            sample_type: REGS_USER | STACK_USER,
            user_registers: 7,
            ..SampleLayout::default()
        };
        let sample = Sample::parse(&record(&bytes(&[0, 0])), &layout).unwrap();
        assert_eq!(sample, Sample::default());
        // The stack has fewer bytes than it says are valid.
        assert!(Sample::parse(&record(&bytes(&[2, 1, 2, 3, 8, 5, 9])), &layout).is_err());
        assert!(Sample::parse(&record(&bytes(&[2, 1, 2, 3, 8, 5, 8])), &layout).is_ok());
    }

    #[test]
    fn huge_counts_are_errors() {
        let layout = SampleLayout {
            sample_type: CALLCHAIN,
            ..SampleLayout::default()
        };
        for count in [u64::MAX, 1 << 61, 2] {
            let body = bytes(&[count, 1]);
            assert!(Sample::parse(&record(&body), &layout).is_err());
        }
    }
}
