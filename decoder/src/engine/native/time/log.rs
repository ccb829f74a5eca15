//! The log of timing packets of a segment, for later resolution.

use backtrail_pt::packet::Packet;
use std::cell::RefCell;
use std::rc::Rc;

/// A timing packet, or another input of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine::native) enum TimingRecord {
    /// `header`: the packet is part of a PSB+.
    Tsc {
        tsc: u64,
        header: bool,
    },
    Cbr {
        ratio: u8,
        header: bool,
    },
    Tma {
        ctc: u16,
        fast: u16,
    },
    Mtc(u8),
    Cyc(u64),
    /// The PSB at this offset.
    Psb(usize),
    /// An overflow.
    Overflow,
    /// Decoding starts again.
    Reset,
    /// The records up to [`Self::LookaheadEnd`] are of packets that were only read ahead. They do
    /// not change the time, but an error in them changes the flow.
    LookaheadStart,
    LookaheadEnd,
}

impl TimingRecord {
    /// Returns the record of a packet; `header`: it is part of a PSB+. `None`: not a timing packet.
    pub fn of(packet: &Packet, header: bool) -> Option<Self> {
        Some(match *packet {
            Packet::Tsc(tsc) => Self::Tsc { tsc, header },
            Packet::Cbr(ratio) => Self::Cbr { ratio, header },
            Packet::Tma { ctc, fast } => Self::Tma { ctc, fast },
            Packet::Mtc(ctc) => Self::Mtc(ctc),
            Packet::Cyc(cycles) => Self::Cyc(cycles),
            _ => return None,
        })
    }
}

/// The timing records of a segment in order.
#[derive(Debug, Default)]
pub(crate) struct TimingLog(pub(in crate::engine::native) Vec<TimingRecord>);

impl TimingLog {
    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Drops all records.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Writes timing records. Clones share the log: each continues at its own length, and overwrites
/// what another wrote there.
#[derive(Clone, Default)]
pub(in crate::engine::native) struct LogWriter {
    records: Rc<RefCell<TimingLog>>,
    len: usize,
    /// The number of records when the time last changed.
    changed: usize,
    /// The TSC, as long as no packet refines it.
    tsc: Option<u64>,
}

impl LogWriter {
    /// Overwrites a log.
    pub fn new(mut records: TimingLog) -> Self {
        records.clear();
        Self {
            records: Rc::new(RefCell::new(records)),
            ..Self::default()
        }
    }

    /// Appends a record.
    pub fn write(&mut self, record: TimingRecord) {
        let TimingLog(records) = &mut *self.records.borrow_mut();
        records.truncate(self.len);
        records.push(record);
        self.len = records.len();
        let tsc = match record {
            TimingRecord::Tsc { tsc, .. } => Some(tsc),
            TimingRecord::Mtc(_) | TimingRecord::Cyc(_) | TimingRecord::Reset => None,
            // These affect only later times.
            TimingRecord::Cbr { .. }
            | TimingRecord::Tma { .. }
            | TimingRecord::Psb(_)
            | TimingRecord::Overflow
            | TimingRecord::LookaheadStart
            | TimingRecord::LookaheadEnd => return,
        };
        // Many PSB+ repeat the known TSC.
        if tsc.is_none() || tsc != self.tsc {
            (self.changed, self.tsc) = (self.len, tsc);
        }
    }

    /// Keeps the records of a clone that read ahead and is about to be dropped, so that an error in
    /// them is found. Nothing was written here since the clone was made.
    pub fn keep_lookahead(&mut self, ahead: &Self) {
        if ahead.len <= self.len {
            return;
        }
        let TimingLog(records) = &mut *self.records.borrow_mut();
        records.truncate(ahead.len);
        records.insert(self.len, TimingRecord::LookaheadStart);
        records.push(TimingRecord::LookaheadEnd);
        self.len = records.len();
    }

    /// Returns the number of records when the time last changed.
    pub fn changed(&self) -> usize {
        self.changed
    }

    /// Returns the log.
    pub fn finish(self) -> TimingLog {
        let mut records = self.records.take();
        records.0.truncate(self.len);
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tsc(tsc: u64) -> TimingRecord {
        TimingRecord::Tsc { tsc, header: false }
    }

    #[test]
    fn records_of_dropped_clones_are_overwritten() {
        let mut writer = LogWriter::default();
        writer.write(tsc(1));
        let mut dropped = writer.clone();
        dropped.write(tsc(2));
        dropped.write(tsc(3));
        writer.write(tsc(4));
        let mut used = writer.clone();
        used.write(tsc(5));
        writer = used;
        let mut unused = writer.clone();
        unused.write(tsc(6));
        assert_eq!(writer.finish().0, [1, 4, 5].map(tsc));
    }

    #[test]
    fn lookahead_is_kept_between_marks() {
        let mut writer = LogWriter::default();
        writer.write(tsc(1));
        let unused = writer.clone();
        writer.keep_lookahead(&unused);
        let mut ahead = writer.clone();
        ahead.write(tsc(2));
        ahead.clone().write(tsc(3));
        writer.keep_lookahead(&ahead);
        assert_eq!(writer.changed(), 1);
        writer.write(tsc(4));
        assert_eq!(writer.changed(), 5);
        let wanted = [
            tsc(1),
            TimingRecord::LookaheadStart,
            tsc(2),
            TimingRecord::LookaheadEnd,
            tsc(4),
        ];
        assert_eq!(writer.finish().0, wanted);
    }

    #[test]
    fn repeated_tsc_does_not_change_the_time() {
        let mut writer = LogWriter::default();
        let mut changed = |record| {
            writer.write(record);
            writer.changed()
        };
        assert_eq!(changed(tsc(7)), 1);
        assert_eq!(changed(TimingRecord::Tma { ctc: 3, fast: 1 }), 1);
        assert_eq!(changed(TimingRecord::Psb(9)), 1);
        assert_eq!(changed(tsc(7)), 1);
        assert_eq!(changed(TimingRecord::Mtc(7)), 5);
        // Time goes backward.
        assert_eq!(changed(tsc(7)), 6);
        assert_eq!(changed(tsc(8)), 7);
    }
}
