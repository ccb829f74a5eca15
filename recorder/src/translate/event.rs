//! The log of a translated thread: the byte encoding of its control-flow events.
//!
//! A byte below 0x80 holds up to six outcomes of conditional branches, the oldest in the highest
//! bit. A leading one marks their start. All other events begin with a tag. In events that often
//! follow outcomes, a byte of outcomes follows the tag.

/// The maximum number of outcomes in one byte.
pub(super) const MAX_OUTCOMES: u32 = 6;

/// No outcomes.
pub(super) const NO_OUTCOMES: u8 = 1;

/// An indirect branch: tag, pending outcomes, target.
pub(super) const TARGET: u8 = 0x80;
/// A system call instruction that is about to execute: tag, time.
pub(super) const SYSCALL: u8 = 0x81;
/// User code continues: tag, address, time.
pub(super) const ENTER: u8 = 0x82;
/// An asynchronous exit before an instruction: tag, address of the instruction, time.
pub(super) const INTERRUPT: u8 = 0x83;
/// An iteration of a loop without packets: tag, the address of its branch or of the branch target.
pub(super) const LOOP_MARKER: u8 = 0x84;
/// A direct near call: tag, pending outcomes, return address.
pub(super) const CALL: u8 = 0x85;
/// The system call of the previous event has not executed: tag.
pub(super) const NO_SYSCALL: u8 = 0x86;
/// An executed far transfer: tag, time.
pub(super) const LEAVE: u8 = 0x87;
/// An unknown control transfer: tag, the address where user code continues.
pub(super) const LOST: u8 = 0x88;
/// A near return, if calls are logged: tag, pending outcomes, target.
pub(super) const RETURN: u8 = 0x89;
/// Translated code has changed: tag, the number of the new version.
pub(super) const VERSION: u8 = 0x8a;

/// An indirect near call, if calls are logged: tag, pending outcomes, return address, target.
pub(super) const INDIRECT_CALL: u8 = 0x8b;

/// A call of an allocator function, before its first instruction: tag, function, address, block or
/// size. [`HEAP_ARGUMENT`] follows if the function has another argument.
pub(super) const HEAP_CALL: u8 = 0x8c;
/// Another argument of the last call of an allocator function: tag, 0, value.
pub(super) const HEAP_ARGUMENT: u8 = 0x8d;
/// The result of an allocator function, before its return: tag, pending outcomes, address of the
/// return, block.
pub(super) const HEAP_RESULT: u8 = 0x8e;

/// A segment of values begins: tag, 0, the address of the next instruction, the value in the trace.
pub(super) const MARK: u8 = 0x8f;

/// The length of [`HEAP_CALL`] and [`HEAP_RESULT`].
pub(super) const HEAP_CALL_LEN: u8 = 18;
/// The length of [`HEAP_ARGUMENT`].
pub(super) const HEAP_ARGUMENT_LEN: u8 = 10;

/// The length of the longest event, in bytes.
pub(super) const MAX_LEN: usize = 18;

/// An event in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogEvent {
    /// Outcomes of conditional branches, after a leading one.
    Outcomes(u8),
    Target {
        outcomes: u8,
        target: u64,
    },
    Return {
        outcomes: u8,
        target: u64,
    },
    Syscall {
        time: u64,
    },
    Enter {
        ip: u64,
        time: u64,
    },
    Interrupt {
        ip: u64,
        time: u64,
    },
    LoopMarker(u64),
    Call {
        outcomes: u8,
        next: u64,
    },
    IndirectCall {
        outcomes: u8,
        next: u64,
        target: u64,
    },
    NoSyscall,
    Leave {
        time: u64,
    },
    Lost(u64),
    Version(u64),
    HeapCall {
        function: u8,
        ip: u64,
        argument: u64,
    },
    HeapArgument(u64),
    Mark {
        ip: u64,
        value: u64,
    },
    HeapResult {
        outcomes: u8,
        ip: u64,
        block: u64,
    },
}

impl LogEvent {
    /// Decodes the first event of a log, and returns it with its length.
    pub(super) fn read(log: &[u8]) -> Option<(Self, usize)> {
        let tag = *log.first()?;
        let word = |at: usize| {
            let bytes = log.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let outcomes = || log.get(1).copied();
        Some(match tag {
            0..TARGET => (Self::Outcomes(tag), 1),
            TARGET => {
                let (outcomes, target) = (outcomes()?, word(2)?);
                (Self::Target { outcomes, target }, 10)
            }
            RETURN => {
                let (outcomes, target) = (outcomes()?, word(2)?);
                (Self::Return { outcomes, target }, 10)
            }
            CALL => {
                let (outcomes, next) = (outcomes()?, word(2)?);
                (Self::Call { outcomes, next }, 10)
            }
            INDIRECT_CALL => {
                let event = Self::IndirectCall {
                    outcomes: outcomes()?,
                    next: word(2)?,
                    target: word(10)?,
                };
                (event, 18)
            }
            SYSCALL => (Self::Syscall { time: word(1)? }, 9),
            ENTER => {
                let (ip, time) = (word(1)?, word(9)?);
                (Self::Enter { ip, time }, 17)
            }
            INTERRUPT => {
                let (ip, time) = (word(1)?, word(9)?);
                (Self::Interrupt { ip, time }, 17)
            }
            LOOP_MARKER => (Self::LoopMarker(word(1)?), 9),
            NO_SYSCALL => (Self::NoSyscall, 1),
            LEAVE => (Self::Leave { time: word(1)? }, 9),
            LOST => (Self::Lost(word(1)?), 9),
            VERSION => (Self::Version(word(1)?), 9),
            HEAP_CALL => {
                let (function, ip, argument) = (outcomes()?, word(2)?, word(10)?);
                (
                    Self::HeapCall {
                        function,
                        ip,
                        argument,
                    },
                    18,
                )
            }
            HEAP_ARGUMENT => (Self::HeapArgument(word(2)?), 10),
            MARK => {
                let (ip, value) = (word(2)?, word(10)?);
                (Self::Mark { ip, value }, 18)
            }
            HEAP_RESULT => {
                let (outcomes, ip, block) = (outcomes()?, word(2)?, word(10)?);
                (Self::HeapResult { outcomes, ip, block }, 18)
            }
            _ => return None,
        })
    }

    /// Returns whether this is a branch event or outcomes, which are by far the most frequent.
    pub(super) fn is_branch(self) -> bool {
        matches!(
            self,
            Self::Outcomes(_)
                | Self::Target { .. }
                | Self::Return { .. }
                | Self::Call { .. }
                | Self::IndirectCall { .. }
        )
    }

    /// Returns the event with its actual target. The pending outcomes are already logged.
    pub(super) fn completed(self, to: u64) -> Self {
        let outcomes = NO_OUTCOMES;
        match self {
            Self::Target { .. } => Self::Target { outcomes, target: to },
            Self::Return { .. } => Self::Return { outcomes, target: to },
            Self::Call { next, .. } => Self::Call { outcomes, next },
            Self::IndirectCall { next, .. } => Self::IndirectCall {
                outcomes,
                next,
                target: to,
            },
            event => event,
        }
    }

    /// Returns the encoded event and its length.
    pub(super) fn write(self) -> ([u8; MAX_LEN], usize) {
        let (head, words): (&[u8], &[u64]) = match self {
            Self::Outcomes(outcomes) => (&[outcomes], &[]),
            Self::Target { outcomes, target } => (&[TARGET, outcomes], &[target]),
            Self::Return { outcomes, target } => (&[RETURN, outcomes], &[target]),
            Self::Call { outcomes, next } => (&[CALL, outcomes], &[next]),
            Self::IndirectCall {
                outcomes,
                next,
                target,
            } => (&[INDIRECT_CALL, outcomes], &[next, target]),
            Self::Syscall { time } => (&[SYSCALL], &[time]),
            Self::Enter { ip, time } => (&[ENTER], &[ip, time]),
            Self::Interrupt { ip, time } => (&[INTERRUPT], &[ip, time]),
            Self::LoopMarker(ip) => (&[LOOP_MARKER], &[ip]),
            Self::NoSyscall => (&[NO_SYSCALL], &[]),
            Self::Leave { time } => (&[LEAVE], &[time]),
            Self::Lost(ip) => (&[LOST], &[ip]),
            Self::Version(number) => (&[VERSION], &[number]),
            Self::HeapCall {
                function,
                ip,
                argument,
            } => (&[HEAP_CALL, function], &[ip, argument]),
            Self::HeapArgument(value) => (&[HEAP_ARGUMENT, 0], &[value]),
            Self::Mark { ip, value } => (&[MARK, 0], &[ip, value]),
            Self::HeapResult { outcomes, ip, block } => (&[HEAP_RESULT, outcomes], &[ip, block]),
        };
        let mut out = [0; MAX_LEN];
        let len = head.len() + 8 * words.len();
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        let bytes = head.iter().copied().chain(words);
        out.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        (out, len)
    }
}

/// Appends an outcome.
pub(super) fn with_outcome(outcomes: u8, taken: bool) -> u8 {
    outcomes << 1 | u8::from(taken)
}

/// Returns the number of outcomes.
#[inline]
pub(super) fn count(outcomes: u8) -> u32 {
    (outcomes | 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        let (ip, time) = (0x1234_5678_9abc, 77);
        let events = [
            LogEvent::Outcomes(0b101),
            LogEvent::Target {
                outcomes: NO_OUTCOMES,
                target: ip,
            },
            LogEvent::Return {
                outcomes: 0b10,
                target: ip,
            },
            LogEvent::Syscall { time },
            LogEvent::Enter { ip, time },
            LogEvent::Interrupt { ip, time },
            LogEvent::LoopMarker(ip),
            LogEvent::Call {
                outcomes: 0b11,
                next: ip,
            },
            LogEvent::IndirectCall {
                outcomes: 0b100,
                next: ip,
                target: !ip,
            },
            LogEvent::NoSyscall,
            LogEvent::Leave { time },
            LogEvent::Lost(ip),
            LogEvent::Version(3),
            LogEvent::HeapCall {
                function: 5,
                ip,
                argument: time,
            },
            LogEvent::HeapArgument(!time),
            LogEvent::Mark { ip, value: time },
            LogEvent::HeapResult {
                outcomes: 0b10,
                ip,
                block: time,
            },
        ];
        for event in events {
            let (bytes, len) = event.write();
            assert_eq!(LogEvent::read(&bytes[..len]), Some((event, len)));
            assert_eq!(LogEvent::read(&bytes[..len - 1]), None, "{event:?} cut short");
        }
    }

    #[test]
    fn six_outcomes_fit() {
        let all = (0..MAX_OUTCOMES).fold(NO_OUTCOMES, |outcomes, _| with_outcome(outcomes, true));
        assert!(all < TARGET && count(all) == 6 && count(NO_OUTCOMES) == 0);
    }
}
