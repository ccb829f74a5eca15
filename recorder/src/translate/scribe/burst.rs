//! The inner loop of the scribe: branches out of a log, as packets.
//!
//! Nobody can foretell what a program does next, so what this costs are wrong guesses of the processor;
//! there is little else in it.

use crate::translate::event;
use backtrail_pt::{Avma, Branches};

/// Writes the branches that a log begins with, as long as the longest event is sure to be whole. Says how
/// many bytes they were, and where the program stood after them, if that is known.
///
/// Inlined, so that the state of `branches` stays in registers.
#[inline]
pub(super) fn write(log: &[u8], branches: &mut Branches<'_>) -> (usize, Option<Avma>) {
    let mut at = 0;
    let mut ip = None;
    while !branches.is_full()
        && let Some(head) = log.get(at..).and_then(|rest| rest.first_chunk())
    {
        let &[tag, behind, ref words @ ..]: &[u8; event::MAX_LEN] = head;
        let &[first, second] = words.as_chunks::<8>().0.first_chunk().unwrap_or(&[[0; 8]; 2]);
        let (first, second) = (u64::from_le_bytes(first), u64::from_le_bytes(second));
        let outcomes = match tag {
            0..event::TARGET => tag,
            event::TARGET | event::CALL | event::RETURN | event::INDIRECT_CALL => behind,
            _ => break,
        };
        let count = event::count(outcomes);
        branches.conditionals(u64::from(outcomes) & !(1 << count), count as u8);
        ip = None;
        let target = match tag {
            event::TARGET => Avma(first),
            event::RETURN => {
                if branches.compressed_return(Avma(first)) {
                    ip = Some(Avma(first));
                    at += 10;
                    continue;
                }
                Avma(first)
            }
            event::INDIRECT_CALL => {
                branches.call(Avma(first));
                at += 8;
                Avma(second)
            }
            event::CALL => {
                branches.call(Avma(first));
                at += 10;
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        branches.indirect(target);
        ip = Some(target);
        at += 10;
    }
    (at, ip)
}
