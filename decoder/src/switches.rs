//! Context switches of one processor, and the executions between them.

use backtrail_pt::{Pid, Tid, Tsc};

/// A context switch of one processor (`PERF_RECORD_SWITCH_CPU_WIDE`, `linux/perf_event.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The time.
    pub at: Tsc,
    /// The process switched in or out; 0: the idle task.
    pub pid: Pid,
    /// The thread switched in or out.
    pub tid: Tid,
    /// The switch is out of the processor; else onto it.
    pub out: bool,
}

/// The kernel's id of an exiting thread in its last switch out, when it has none any more: −1
/// (`perf_event_pid` in `kernel/events/core.c`). It is the thread that was switched in.
const EXITED: Tid = Tid(u32::MAX);

/// An interval in which one thread ran on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Its start (inclusive).
    pub start: Tsc,
    /// Its end (inclusive).
    pub end: Tsc,
    /// The switch onto the processor is recorded; otherwise `start` is a lower bound.
    pub start_known: bool,
    /// The switch out is recorded; otherwise `end` is an upper bound.
    pub end_known: bool,
}

/// Returns the executions between the switches of a processor, in order of time.
///
/// The rules are LLDB's, so that numbers compare, except for exited threads. For example, two
/// switches in without one out between mean that the switch out is missing. A switch that goes back
/// in time is ignored.
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
            (Some(last), false) if !last.out => found.push(open_ended(last, Tsc(switch.at.0 - 1))),
            (Some(_), false) => {}
            (Some(last), true) if last.out => found.push(ended(switch, Tsc(last.at.0 + 1))),
            (Some(last), true)
                if (last.pid, last.tid) == (switch.pid, switch.tid) || switch.tid == EXITED =>
            {
                found.push(Execution {
                    end_known: true,
                    ..open_ended(last, switch.at)
                });
            }
            (Some(last), true) => {
                // Both are cut at an unknown time between the two switches.
                found.push(open_ended(last, Tsc(switch.at.0 - 1)));
                found.push(ended(switch, Tsc(last.at.0 + 1)));
            }
        }
        before = Some(switch);
    }
    if let Some(last) = before.filter(|last| !last.out) {
        found.push(open_ended(last, Tsc(u64::MAX)));
    }
    found
}

/// Returns an execution without a switch out, which ended at `end` at the latest.
fn open_ended(switch: Switch, end: Tsc) -> Execution {
    Execution {
        pid: switch.pid,
        tid: switch.tid,
        start: switch.at,
        end,
        start_known: true,
        end_known: false,
    }
}

/// Returns an execution without a switch in, which started at `start` at the earliest.
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

    /// Thread, start, whether it is known, end, whether it is known.
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
    fn exited_thread_ends_its_own_execution() {
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
