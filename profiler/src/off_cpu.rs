//! The time in which threads wait, from context switches.
//!
//! The event of context switches takes a sample as a thread leaves the processor, with the stack
//! that waits. The records of the switches say when the thread left, whether it had to, and when it
//! came back.

use crate::address::CodeFrame;
use backtrail_perf::switch::Direction;
use backtrail_pt::{Cpu, Pid, Tid};
use std::collections::HashMap;

/// A thread that waits, or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The processor that it left.
    pub cpu: Option<Cpu>,
    /// The stack.
    pub frames: Vec<CodeFrame>,
    /// The start.
    pub since: u64,
    /// The end of the wait, where it was sampled.
    pub waker: Option<Waker>,
    /// The labels of the sample.
    pub labels: Vec<(String, String)>,
}

/// The end of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waker {
    /// An interrupt, as of a timer or a disk.
    Interrupt,
    /// A thread.
    Thread {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The processor.
        cpu: Option<Cpu>,
        /// The stack.
        frames: Vec<CodeFrame>,
        /// The time.
        time: u64,
    },
}

/// The threads that wait.
#[derive(Debug, Default)]
pub(crate) struct OffCpu {
    /// The last sample of each thread, and whether it waits since then.
    waits: HashMap<Tid, (Wait, bool)>,
}

impl OffCpu {
    /// Adds a sample of a thread that leaves its processor.
    pub fn leave(&mut self, wait: Wait) {
        self.waits.insert(wait.tid, (wait, false));
    }

    /// Applies a switch. Returns the wait that ended with it, and its length.
    pub fn switch(&mut self, tid: Tid, direction: Direction, time: u64) -> Option<(Wait, u64)> {
        match direction {
            // Threads that could run on are not waiting for anything but the processor.
            Direction::Out { preempted: true } => {
                self.waits.remove(&tid);
                None
            }
            Direction::Out { preempted: false } => {
                if let Some((wait, is_waiting)) = self.waits.get_mut(&tid) {
                    (wait.since, *is_waiting) = (time, true);
                }
                None
            }
            Direction::In => {
                let (wait, is_waiting) = self.waits.remove(&tid)?;
                let length = time.saturating_sub(wait.since);
                is_waiting.then_some((wait, length))
            }
        }
    }

    /// Returns whether a thread waits, so that its waker matters.
    pub fn is_waiting(&self, tid: Tid) -> bool {
        self.waits.get(&tid).is_some_and(|(_, is_waiting)| *is_waiting)
    }

    /// Adds what ended a wait.
    pub fn wake(&mut self, tid: Tid, waker: Waker) {
        if let Some((wait, true)) = self.waits.get_mut(&tid) {
            wait.waker = Some(waker);
        }
    }

    /// Forgets a thread that ended.
    pub fn end(&mut self, tid: Tid) {
        self.waits.remove(&tid);
    }

    /// Returns the waits that last until the end of the recording, with their lengths so far.
    pub fn finish(&mut self, time: u64) -> impl Iterator<Item = (Wait, u64)> {
        let waits = self.waits.drain().map(|(_, wait)| wait);
        waits.filter_map(move |(wait, is_waiting)| {
            let length = time.saturating_sub(wait.since);
            is_waiting.then_some((wait, length))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(tid: u32, since: u64) -> Wait {
        Wait {
            pid: Pid(1),
            tid: Tid(tid),
            cpu: None,
            frames: vec![CodeFrame::Address(tid.into())],
            since,
            waker: None,
            labels: Vec::new(),
        }
    }

    #[test]
    fn only_waits_count() {
        let mut off_cpu = OffCpu::default();
        off_cpu.leave(wait(1, 10));
        assert_eq!(
            off_cpu.switch(Tid(1), Direction::Out { preempted: false }, 11),
            None
        );
        off_cpu.leave(wait(2, 12));
        off_cpu.switch(Tid(2), Direction::Out { preempted: true }, 13);
        assert_eq!(off_cpu.switch(Tid(2), Direction::In, 50), None);
        let (found, length) = off_cpu.switch(Tid(1), Direction::In, 111).unwrap();
        assert_eq!((found.frames, length), (vec![CodeFrame::Address(1)], 100));
        // A thread that came back has nothing open, and one without a sample never had.
        assert_eq!(off_cpu.switch(Tid(1), Direction::In, 120), None);
        assert_eq!(off_cpu.switch(Tid(9), Direction::In, 120), None);
    }

    #[test]
    fn wakers_belong_to_waits() {
        let mut off_cpu = OffCpu::default();
        off_cpu.wake(Tid(1), Waker::Interrupt);
        off_cpu.leave(wait(1, 10));
        // Threads that are woken before they leave the processor do not wait.
        off_cpu.wake(Tid(1), Waker::Interrupt);
        assert!(!off_cpu.is_waiting(Tid(1)));
        off_cpu.switch(Tid(1), Direction::Out { preempted: false }, 11);
        assert!(off_cpu.is_waiting(Tid(1)));
        let waker = Waker::Thread {
            pid: Pid(7),
            tid: Tid(8),
            cpu: None,
            frames: Vec::new(),
            time: 19,
        };
        off_cpu.wake(Tid(1), waker.clone());
        let (found, length) = off_cpu.switch(Tid(1), Direction::In, 20).unwrap();
        assert_eq!((found.waker, length), (Some(waker), 9));
    }

    #[test]
    fn waits_at_the_end_count_so_far() {
        let mut off_cpu = OffCpu::default();
        for tid in 1..4 {
            off_cpu.leave(wait(tid, 5));
        }
        off_cpu.switch(Tid(1), Direction::Out { preempted: false }, 10);
        off_cpu.switch(Tid(2), Direction::Out { preempted: false }, 20);
        off_cpu.end(Tid(2));
        let waits: Vec<_> = off_cpu
            .finish(100)
            .map(|(wait, length)| (wait.tid, length))
            .collect();
        assert_eq!(waits, [(Tid(1), 90)]);
    }
}
