//! The log that a translated thread writes: what its control flow was, in bytes.
//!
//! A byte below 0x80 holds up to six outcomes of conditional branches, the oldest highest, behind a one
//! that marks where they begin. Anything else begins with a tag; where outcomes often come right before
//! it, a byte of them follows the tag.

/// Most outcomes in one byte.
pub(super) const MAX_OUTCOMES: u32 = 6;

/// No outcomes.
pub(super) const NO_OUTCOMES: u8 = 1;

/// An indirect branch went to a target: tag, outcomes before it, target.
pub(super) const TARGET: u8 = 0x80;
/// A system call instruction is about to be executed: tag, time.
pub(super) const SYSCALL: u8 = 0x81;
/// User code goes on: tag, address, time.
pub(super) const ENTER: u8 = 0x82;
/// Control is taken away before an instruction: tag, its address, time.
pub(super) const INTERRUPT: u8 = 0x83;
/// A loop without packets closes: tag, the address of its branch, or of where that leads.
pub(super) const TURN: u8 = 0x84;
/// A direct near call: tag, outcomes before it, its return address.
pub(super) const CALL: u8 = 0x85;
/// The system call just told of was not executed: tag.
pub(super) const NO_SYSCALL: u8 = 0x86;
/// A far transfer was executed: tag, time.
pub(super) const LEAVE: u8 = 0x87;
/// What happened is not known: tag, the address where user code goes on.
pub(super) const LOST: u8 = 0x88;
/// A near return went to a target, where calls are logged too: tag, outcomes before it, target.
pub(super) const RETURN: u8 = 0x89;
/// Code that was translated before has changed: tag, the number of the change.
pub(super) const VERSION: u8 = 0x8a;

/// An indirect near call, where calls are logged: tag, outcomes before it, its return address, its target.
pub(super) const INDIRECT_CALL: u8 = 0x8b;

/// The longest record, in bytes.
pub(super) const MAX_LEN: usize = 18;

/// What a log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Outcomes of conditional branches, behind a leading one.
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
    Turn(u64),
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
}

impl Event {
    /// The first event of a log, and its length.
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
            TURN => (Self::Turn(word(1)?), 9),
            NO_SYSCALL => (Self::NoSyscall, 1),
            LEAVE => (Self::Leave { time: word(1)? }, 9),
            LOST => (Self::Lost(word(1)?), 9),
            VERSION => (Self::Version(word(1)?), 9),
            _ => return None,
        })
    }

    /// Whether it is a branch or outcomes of some: what the tracee's code logs by far the most.
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

    /// The event with the target that control went to; the outcomes before it are in the log.
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

    /// Its bytes in a log.
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
            Self::Turn(ip) => (&[TURN], &[ip]),
            Self::NoSyscall => (&[NO_SYSCALL], &[]),
            Self::Leave { time } => (&[LEAVE], &[time]),
            Self::Lost(ip) => (&[LOST], &[ip]),
            Self::Version(number) => (&[VERSION], &[number]),
        };
        let mut out = [0; MAX_LEN];
        let len = head.len() + 8 * words.len();
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        let bytes = head.iter().copied().chain(words);
        out.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        (out, len)
    }
}

/// The outcomes with one more.
pub(super) fn with_outcome(outcomes: u8, taken: bool) -> u8 {
    outcomes << 1 | u8::from(taken)
}

/// How many outcomes there are.
#[inline]
pub(super) fn count(outcomes: u8) -> u32 {
    (outcomes | 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_comes_back() {
        let (ip, time) = (0x1234_5678_9abc, 77);
        let events = [
            Event::Outcomes(0b101),
            Event::Target {
                outcomes: NO_OUTCOMES,
                target: ip,
            },
            Event::Return {
                outcomes: 0b10,
                target: ip,
            },
            Event::Syscall { time },
            Event::Enter { ip, time },
            Event::Interrupt { ip, time },
            Event::Turn(ip),
            Event::Call {
                outcomes: 0b11,
                next: ip,
            },
            Event::IndirectCall {
                outcomes: 0b100,
                next: ip,
                target: !ip,
            },
            Event::NoSyscall,
            Event::Leave { time },
            Event::Lost(ip),
            Event::Version(3),
        ];
        for event in events {
            let (bytes, len) = event.write();
            assert_eq!(Event::read(&bytes[..len]), Some((event, len)));
            assert_eq!(Event::read(&bytes[..len - 1]), None, "{event:?} cut short");
        }
    }

    #[test]
    fn six_outcomes_fit() {
        let all = (0..MAX_OUTCOMES).fold(NO_OUTCOMES, |outcomes, _| with_outcome(outcomes, true));
        assert!(all < TARGET && count(all) == 6 && count(NO_OUTCOMES) == 0);
    }
}
