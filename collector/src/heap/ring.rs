//! The newest allocator calls of a process, in bounded memory.

use crate::probe::LostCalls;
use backtrail_bpf::{HEAP_STACK_WORDS, HeapEvent};
use backtrail_bundle::Result;
use backtrail_bundle::heap::AllocatorFunction;
use backtrail_bundle::heap_records::{
    HeapGap, HeapInterval, HeapRecord, HeapRecords, MAX_GAPS, RECORD_SIZE, STACK_WORDS,
};
use backtrail_pt::{Avma, Pid, Tid};
use std::collections::VecDeque;

const _: () = assert!(size_of::<HeapEvent>() == RECORD_SIZE && HEAP_STACK_WORDS == STACK_WORDS);

/// The newest calls of a process.
#[derive(Debug)]
pub(super) struct CallRing {
    /// The maximum number of calls.
    capacity: usize,
    calls: VecDeque<HeapEvent>,
    /// Calls that began before this time are not known.
    since: u64,
    /// The program image of the process; `None`: no call was seen yet.
    image: Option<u32>,
    gaps: VecDeque<HeapGap>,
    /// The lost calls that are in `gaps`.
    lost: u64,
    /// The time at which the lost calls were read last.
    looked: u64,
}

impl CallRing {
    /// Returns an empty ring of at most `bytes`, for calls from `since` on.
    pub(super) fn new(bytes: u64, since: u64) -> Self {
        Self {
            capacity: usize::try_from(bytes).unwrap_or(usize::MAX) / RECORD_SIZE,
            calls: VecDeque::new(),
            since,
            image: None,
            gaps: VecDeque::new(),
            lost: 0,
            looked: since,
        }
    }

    /// Returns the number of calls.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Adds a call. After the process has executed another program, older calls are forgotten.
    pub(super) fn push(&mut self, event: &HeapEvent) {
        if self.image != Some(event.image) {
            if self.image.is_some() {
                self.calls.clear();
                self.gaps.clear();
                self.since = event.began;
            }
            self.image = Some(event.image);
        }
        if self.calls.len() >= self.capacity
            && let Some(oldest) = self.calls.pop_front()
        {
            // A call that ended later may have begun earlier, and is known too.
            self.since = self.since.max(oldest.ended);
        }
        self.calls.push_back(*event);
    }

    /// Records the lost calls at time `now`.
    pub(super) fn note_lost(&mut self, lost: LostCalls, now: u64) {
        let more = lost.count.saturating_sub(self.lost);
        if more > 0 {
            let gap = HeapGap {
                from: self.looked.min(lost.at),
                to: lost.at,
                lost: more,
            };
            self.lost = lost.count;
            self.gaps.push_back(gap);
            // Many gaps become one.
            if self.gaps.len() > MAX_GAPS
                && let (Some(first), Some(second)) = (self.gaps.pop_front(), self.gaps.front_mut())
            {
                second.from = first.from;
                second.lost = second.lost.saturating_add(first.lost);
            }
        }
        self.looked = now;
        let since = self.since;
        self.gaps.retain(|gap| gap.to >= since);
    }

    /// Returns the file of the calls until now. `zero` is the time of the crash.
    pub(super) fn encode(&self, pid: Pid, zero: u64, perf_offset: Option<i64>, now: u64) -> Result<Vec<u8>> {
        let records: Vec<HeapRecord> = self.calls.iter().filter_map(record).collect();
        let last = records.iter().map(|record| record.ended).max();
        let interval = HeapInterval {
            pid,
            since: self.since,
            until: now.max(last.unwrap_or_default()).max(self.since),
            zero,
            perf_offset,
            gaps: self.gaps.iter().copied().collect(),
        };
        HeapRecords::encode(&interval, &records)
    }
}

/// Returns the record of a call. `None`: the program wrote an unknown function.
fn record(event: &HeapEvent) -> Option<HeapRecord> {
    Some(HeapRecord {
        began: event.began,
        ended: event.ended.max(event.began),
        argument: event.argument,
        size: event.size,
        result: event.result,
        caller: Avma(event.caller),
        sp: event.sp,
        bp: event.bp,
        tid: Tid(event.tid),
        function: *AllocatorFunction::ALL.get(usize::from(event.function))?,
        words: event.words.min(STACK_WORDS as u16),
        stack: event.stack,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::SharedBytes;

    fn event(at: u64, image: u32) -> HeapEvent {
        HeapEvent {
            began: at,
            ended: at + 2,
            argument: at,
            size: 0,
            result: 0,
            caller: 0,
            sp: 0,
            bp: 0,
            pid: 1,
            tid: 2,
            image,
            function: 3,
            words: 0,
            stack: [0; HEAP_STACK_WORDS],
        }
    }

    fn parsed(ring: &CallRing) -> HeapRecords {
        let bytes = ring.encode(Pid(1), 500, None, 400).unwrap();
        HeapRecords::parse(&SharedBytes::from(bytes)).unwrap()
    }

    #[test]
    fn newest_calls_are_kept_and_the_begin_is_known() {
        let mut ring = CallRing::new(4 * RECORD_SIZE as u64, 10);
        for at in (20..80).step_by(10) {
            ring.push(&event(at, 7));
        }
        let found = parsed(&ring);
        let begins: Vec<u64> = found.iter().map(|record| record.began).collect();
        assert_eq!(begins, [40, 50, 60, 70]);
        assert_eq!((found.interval.since, found.interval.until), (32, 400));
    }

    #[test]
    fn calls_of_an_older_program_are_forgotten() {
        let mut ring = CallRing::new(1 << 20, 10);
        ring.push(&event(20, 7));
        ring.push(&event(30, 8));
        let found = parsed(&ring);
        assert_eq!((found.len(), found.interval.since), (1, 30));
    }

    #[test]
    fn lost_calls_are_gaps_between_looks() {
        let mut ring = CallRing::new(4 * RECORD_SIZE as u64, 10);
        let lost = |count, at| LostCalls { count, at };
        ring.note_lost(lost(0, 0), 20);
        ring.note_lost(lost(3, 25), 30);
        ring.note_lost(lost(3, 25), 40);
        ring.note_lost(lost(5, 45), 50);
        let gap = |from, to, lost| HeapGap { from, to, lost };
        assert_eq!(parsed(&ring).interval.gaps, [gap(20, 25, 3), gap(40, 45, 2)]);
        // Gaps before the oldest call do not matter.
        for at in (20..80).step_by(10) {
            ring.push(&event(at, 7));
        }
        ring.note_lost(lost(5, 45), 60);
        assert_eq!(parsed(&ring).interval.gaps, [gap(40, 45, 2)]);
        for count in 6..10_000 {
            ring.note_lost(lost(count, 100 + count), 101 + count);
        }
        let gaps = parsed(&ring).interval.gaps;
        assert_eq!(gaps.len(), MAX_GAPS);
        assert_eq!(gaps.iter().map(|gap| gap.lost).sum::<u64>(), 9999 - 3);
    }
}
