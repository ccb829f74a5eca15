//! Context switches of one processor, and the continuous executions between them.

use backtrail_pt::{Pid, Tid, Tsc};

/// A context switch of one processor (`PERF_RECORD_SWITCH_CPU_WIDE`, `linux/perf_event.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// When.
    pub at: Tsc,
    /// The process switched in or out; 0: the idle task.
    pub pid: Pid,
    /// The thread switched in or out.
    pub tid: Tid,
    /// Out of the processor, or onto it.
    pub out: bool,
}

/// What the kernel calls a thread that leaves a processor for the last time and has no number any more: −1 (`perf_event_pid` in
/// `kernel/events/core.c`). It is the one that came.
const GONE: Tid = Tid(u32::MAX);

/// A stretch of time in which one thread had a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// From this time on (inclusive).
    pub start: Tsc,
    /// Up to this time (inclusive).
    pub end: Tsc,
    /// The switch onto the processor is recorded; otherwise `start` is only the earliest it can be.
    pub start_known: bool,
    /// The switch out is recorded; otherwise `end` is only the latest it can be.
    pub end_known: bool,
}

/// The continuous executions that the switches of a processor tell, in order of time.
///
/// The rules are LLDB's, so that the numbers compare, but for threads that are gone: two switches in without one out between mean
/// that the out is missing, and so on. A switch that goes back in time is not believed.
#[must_use]
pub fn executions(switches: &[Switch]) -> Vec<Execution> {
    let mut found = Vec::new();
    let mut before: Option<Switch> = None;
    for &switch in switches {
        if before.is_some_and(|before| switch.at <= before.at) {
            continue;
        }
        match (before, switch.out) {
            (None, true) => found.push(ended(switch, Tsc(0))),
            (None, false) => {}
            (Some(last), false) if !last.out => found.push(begun(last, Tsc(switch.at.0 - 1))),
            (Some(_), false) => {}
            (Some(last), true) if last.out => found.push(ended(switch, Tsc(last.at.0 + 1))),
            (Some(last), true) if (last.pid, last.tid) == (switch.pid, switch.tid) || switch.tid == GONE => {
                found.push(Execution {
                    end_known: true,
                    ..begun(last, switch.at)
                });
            }
            (Some(last), true) => {
                // Both are cut off at an unknown time between the two switches.
                found.push(begun(last, Tsc(switch.at.0 - 1)));
                found.push(ended(switch, Tsc(last.at.0 + 1)));
            }
        }
        before = Some(switch);
    }
    if let Some(last) = before.filter(|last| !last.out) {
        found.push(begun(last, Tsc(u64::MAX)));
    }
    found
}

/// Switched in and not seen going out, which was at `end` at the latest.
fn begun(switch: Switch, end: Tsc) -> Execution {
    Execution {
        pid: switch.pid,
        tid: switch.tid,
        start: switch.at,
        end,
        start_known: true,
        end_known: false,
    }
}

/// Switched out and not seen coming in, which was at `start` at the earliest.
fn ended(switch: Switch, start: Tsc) -> Execution {
    Execution {
        pid: switch.pid,
        tid: switch.tid,
        start,
        end: switch.at,
        start_known: false,
        end_known: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(at: u64, tid: u32, out: bool) -> Switch {
        Switch {
            at: Tsc(at),
            pid: Pid(1),
            tid: Tid(tid),
            out,
        }
    }

    /// Thread, start, whether known, end, whether known.
    fn found(switches: &[Switch]) -> Vec<(u32, u64, bool, u64, bool)> {
        let row = |one: &Execution| (one.tid.0, one.start.0, one.start_known, one.end.0, one.end_known);
        executions(switches).iter().map(row).collect()
    }

    #[test]
    fn switches_pair_up() {
        let switches = [
            switch(10, 1, false),
            switch(20, 1, true),
            switch(21, 2, false),
            switch(30, 2, true),
        ];
        assert_eq!(
            found(&switches),
            [(1, 10, true, 20, true), (2, 21, true, 30, true)]
        );
    }

    #[test]
    fn a_missing_switch_leaves_a_bound() {
        let end = u64::MAX;
        assert_eq!(found(&[switch(10, 1, true)]), [(1, 0, false, 10, true)]);
        assert_eq!(found(&[switch(10, 1, false)]), [(1, 10, true, end, false)]);
        let ins = [switch(10, 1, false), switch(20, 2, false)];
        assert_eq!(found(&ins), [(1, 10, true, 19, false), (2, 20, true, end, false)]);
        let outs = [switch(10, 1, true), switch(20, 2, true)];
        assert_eq!(found(&outs), [(1, 0, false, 10, true), (2, 11, false, 20, true)]);
        let crossed = [switch(10, 1, false), switch(20, 2, true)];
        assert_eq!(
            found(&crossed),
            [(1, 10, true, 19, false), (2, 11, false, 20, true)]
        );
    }

    #[test]
    fn a_thread_that_is_gone_ends_as_itself() {
        let switches = [
            switch(10, 1, false),
            switch(20, u32::MAX, true),
            switch(21, 2, false),
            switch(30, 2, true),
        ];
        assert_eq!(
            found(&switches),
            [(1, 10, true, 20, true), (2, 21, true, 30, true)]
        );
    }

    #[test]
    fn time_does_not_run_backward() {
        assert_eq!(found(&[switch(10, 1, true), switch(5, 2, true)]).len(), 1);
    }
}
