//! Context switches of one processor (`PERF_RECORD_SWITCH_CPU_WIDE`), and the ends of the parts of
//! its trace (`PERF_RECORD_AUX`).
//!
//! LLDB's `contextSwitchTrace` file is the raw ring buffer of an event with `sample_type = TID |
//! TIME`. Each context switch record has 32 bytes: header (8), next or previous pid and tid (8),
//! pid and tid (8), time (8). Source: `linux/perf_event.h`.

use crate::Error;
use crate::cursor::Cursor;
use backtrail_pt::{Nanos, Pid, Tid};

/// `PERF_RECORD_SWITCH_CPU_WIDE`.
pub(crate) const SWITCH_CPU_WIDE: u32 = 15;
/// `PERF_RECORD_AUX`.
const AUX: u32 = 11;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
pub(crate) const MISC_SWITCH_OUT: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT_PREEMPT`.
pub(crate) const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// The size of a record in a switch trace: header, other task, own task, time.
const RECORD_SIZE: u16 = 32;
/// The size of an AUX record: header, offset, size, flags, task, time.
const AUX_RECORD_SIZE: u16 = 48;
/// The maximum record size of the kernel, as LLDB bounds it.
const MAX_RECORD_SIZE: u16 = 8000;
/// Larger types are not accepted as records of this or a later kernel, as LLDB bounds them.
const MAX_RECORD_TYPE: u32 = 19 + 100;

/// The direction of a context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The task starts running.
    In,
    /// The task stops running.
    Out {
        /// Whether the task was still runnable, and the scheduler preempted it.
        preempted: bool,
    },
}

/// One task that starts or stops running on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextSwitch {
    /// The time on perf's clock.
    pub time: Nanos,
    /// The process that starts or stops; 0 is the idle task.
    pub pid: Pid,
    /// The thread that starts or stops.
    pub tid: Tid,
    /// Whether it starts or stops.
    pub direction: Direction,
    /// The process that ran before (`In`) or runs next (`Out`).
    pub next_prev_pid: Pid,
    /// The thread of that process.
    pub next_prev_tid: Tid,
}

impl ContextSwitch {
    /// Returns the record in a switch trace, as [`parse`] reads it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_SIZE as usize] {
        let misc = match self.direction {
            Direction::In => 0,
            Direction::Out { preempted: false } => MISC_SWITCH_OUT,
            Direction::Out { preempted: true } => MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPT,
        };
        let header = u64::from(SWITCH_CPU_WIDE) | u64::from(misc) << 32 | u64::from(RECORD_SIZE) << 48;
        let pair = |pid: Pid, tid: Tid| u64::from(pid.0) | u64::from(tid.0) << 32;
        let fields = [
            header,
            pair(self.next_prev_pid, self.next_prev_tid),
            pair(self.pid, self.tid),
            self.time.0,
        ];
        let mut bytes = [0; RECORD_SIZE as usize];
        for (slot, field) in bytes.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

/// Returns the direction that a switch record's `misc` encodes.
pub(crate) fn direction(misc: u16) -> Direction {
    if misc & MISC_SWITCH_OUT == 0 {
        Direction::In
    } else {
        Direction::Out {
            preempted: misc & MISC_SWITCH_OUT_PREEMPT != 0,
        }
    }
}

/// The end of a part of the trace: `PERF_RECORD_AUX` in a switch trace. Its offsets are those of
/// the trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AuxEnd {
    /// The offset after the part.
    pub offset: u64,
    /// The time at which the part was complete, on perf's clock.
    pub time: Nanos,
}

impl AuxEnd {
    /// Returns the record in a switch trace, as [`parse_aux`] reads it: a part from the start of
    /// the trace.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; AUX_RECORD_SIZE as usize] {
        let header = u64::from(AUX) | u64::from(AUX_RECORD_SIZE) << 48;
        let mut bytes = [0; AUX_RECORD_SIZE as usize];
        let fields = [header, 0, self.offset, 0, 0, self.time.0];
        for (slot, field) in bytes.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

/// Takes the next record off the front of `rest`, and returns its type, its `misc` and its bytes
/// with the header.
fn take<'a>(rest: &mut &'a [u8], offset: u64) -> Result<(u32, u16, &'a [u8]), Error> {
    const WHAT: &str = "context switch record";
    let mut header = Cursor::new(rest, WHAT, offset);
    let (kind, misc, size) = (header.u32()?, header.u16()?, header.u16()?);
    if !(8..=MAX_RECORD_SIZE).contains(&size) || kind >= MAX_RECORD_TYPE {
        return Err(header.invalid(format!("it has type {kind} and {size} bytes")));
    }
    let (record, tail) = rest
        .split_at_checked(size.into())
        .ok_or(Error::Truncated { what: WHAT, offset })?;
    *rest = tail;
    Ok((kind, misc, record))
}

/// Parses the ends of parts of the trace in a switch trace. Records of other types are skipped.
///
/// # Errors
/// Fails if a record is truncated or invalid.
pub fn parse_aux(bytes: &[u8]) -> Result<Vec<AuxEnd>, Error> {
    const WHAT: &str = "PERF_RECORD_AUX";
    let mut ends = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let offset = (bytes.len() - rest.len()) as u64;
        let (kind, _, record) = take(&mut rest, offset)?;
        if kind == AUX {
            let mut fields = Cursor::new(record, WHAT, offset);
            fields.bytes(8)?;
            let (start, size, _flags, _task) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
            ends.push(AuxEnd {
                offset: start.saturating_add(size),
                time: Nanos(fields.u64()?),
            });
        }
    }
    Ok(ends)
}

/// Parses a switch trace. Records of other types are skipped.
///
/// # Errors
/// Fails if a record is truncated, invalid, or earlier than the previous one.
pub fn parse(bytes: &[u8]) -> Result<Vec<ContextSwitch>, Error> {
    const WHAT: &str = "context switch record";
    let mut switches: Vec<ContextSwitch> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let offset = (bytes.len() - rest.len()) as u64;
        let (kind, misc, record) = take(&mut rest, offset)?;
        if kind != SWITCH_CPU_WIDE {
            continue;
        }
        let mut fields = Cursor::new(record, WHAT, offset);
        fields.bytes(8)?;
        let (next_prev_pid, next_prev_tid) = (Pid(fields.u32()?), Tid(fields.u32()?));
        let (pid, tid, time) = (Pid(fields.u32()?), Tid(fields.u32()?), Nanos(fields.u64()?));
        if switches.last().is_some_and(|last| last.time > time) {
            return Err(fields.invalid("it is earlier than the previous record"));
        }
        let direction = direction(misc);
        switches.push(ContextSwitch {
            time,
            pid,
            tid,
            direction,
            next_prev_pid,
            next_prev_tid,
        });
    }
    Ok(switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: ContextSwitch = ContextSwitch {
        time: Nanos(7_002_199_330_581_691),
        pid: Pid(77590),
        tid: Tid(77685),
        direction: Direction::Out { preempted: true },
        next_prev_pid: Pid(0),
        next_prev_tid: Tid(0),
    };

    #[test]
    fn records_round_trip() {
        let later = ContextSwitch {
            direction: Direction::In,
            time: Nanos(SWITCH.time.0 + 1),
            ..SWITCH
        };
        let bytes = [SWITCH.to_bytes(), later.to_bytes()].concat();
        assert_eq!(parse(&bytes).unwrap(), [SWITCH, later]);
        assert!(matches!(
            parse(&[later.to_bytes(), SWITCH.to_bytes()].concat()),
            Err(Error::Invalid { offset: 32, .. })
        ));
    }

    #[test]
    fn ends_of_parts_are_between_the_switches() {
        let ends = [(0x100, 7), (0x180, 9)].map(|(offset, time)| AuxEnd {
            offset,
            time: Nanos(time),
        });
        let bytes = [&ends[0].to_bytes()[..], &SWITCH.to_bytes(), &ends[1].to_bytes()].concat();
        assert_eq!(parse_aux(&bytes).unwrap(), ends);
        assert_eq!(parse(&bytes).unwrap(), [SWITCH]);
        let record = ends[0].to_bytes();
        for end in 1..record.len() {
            assert!(
                matches!(parse_aux(&record[..end]), Err(Error::Truncated { .. })),
                "{end}"
            );
        }
        let mut short = record;
        short[6..8].copy_from_slice(&40u16.to_le_bytes());
        assert!(matches!(parse_aux(&short[..40]), Err(Error::Truncated { .. })));
        // The kernel's records have a start, too.
        let mut kernel = record;
        kernel[8] = 0x40;
        assert_eq!(parse_aux(&kernel).unwrap()[0].offset, 0x140);
    }

    #[test]
    fn truncated_record_is_refused() {
        let bytes = SWITCH.to_bytes();
        for end in 1..bytes.len() {
            assert!(
                matches!(parse(&bytes[..end]), Err(Error::Truncated { offset: 0, .. })),
                "{end}"
            );
        }
    }

    #[test]
    fn record_without_size_does_not_loop() {
        let mut bytes = SWITCH.to_bytes();
        bytes[6..8].fill(0);
        assert!(matches!(parse(&bytes), Err(Error::Invalid { offset: 0, .. })));
    }

    #[test]
    fn other_records_are_skipped() {
        let mut bytes = SWITCH.to_bytes().to_vec();
        bytes[0] = 2;
        bytes.extend(SWITCH.to_bytes());
        assert_eq!(parse(&bytes).unwrap(), [SWITCH]);
    }
}
