//! The inner loop of the encoders: encodes branch events as packets.
//!
//! The events are unpredictable, so branch mispredictions dominate the cost of this loop.

use crate::translate::event;
use backtrail_pt::{Avma, Branches};

/// The bit of each byte that is zero in outcomes.
const TAGS: u64 = 0x8080_8080_8080_8080;

/// Encodes branch events from the start of a log, as long as the longest event surely fits in the
/// rest. Returns the number of bytes read, and the program address after them if it is known. Zero
/// bytes are skipped.
///
/// Inlined, so that the state of `branches` stays in registers.
#[inline]
pub(super) fn encode_branches(log: &[u8], branches: &mut Branches<'_>) -> (usize, Option<Avma>) {
    let mut at = 0;
    let mut ip = None;
    while !branches.is_full()
        && let Some(head) = log.get(at..).and_then(|rest| rest.first_chunk())
    {
        let &[tag, second_byte, ref words @ ..]: &[u8; event::MAX_LEN] = head;
        if let Some(bytes) = head.first_chunk() {
            let bytes = u64::from_le_bytes(*bytes);
            if bytes & TAGS == 0 {
                let (outcomes, count) = combine_outcomes(bytes.swap_bytes());
                branches.many_conditionals(outcomes, count);
                ip = None;
                at += 8;
                continue;
            }
        }
        let &[first, second] = words.as_chunks::<8>().0.first_chunk().unwrap_or(&[[0; 8]; 2]);
        let (first, second) = (u64::from_le_bytes(first), u64::from_le_bytes(second));
        let outcomes = match tag {
            0..event::TARGET => tag,
            event::TARGET | event::CALL | event::RETURN | event::INDIRECT_CALL => second_byte,
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

/// Combines eight bytes of outcomes, the oldest in the highest byte, into one sequence with its
/// length.
#[inline]
fn combine_outcomes(bytes: u64) -> (u64, u8) {
    // All bits below the leading one of each byte.
    let below = |by: u32, mask: u8| bytes_of(mask) & (bytes >> by);
    let below =
        below(1, 0x3f) | below(2, 0x1f) | below(3, 0x0f) | below(4, 0x07) | below(5, 0x03) | below(6, 0x01);
    let outcomes = bytes & below;
    // The number of outcomes in each byte.
    let pairs = below - (below >> 1 & bytes_of(0x55));
    let nibbles = (pairs & bytes_of(0x33)) + (pairs >> 2 & bytes_of(0x33));
    let counts = (nibbles + (nibbles >> 4)) & bytes_of(0x0f);
    let byte = |word: u64, at: u32| word >> (8 * at) & 0xff;
    let two = |at: u32| byte(outcomes, at + 1) << byte(counts, at) | byte(outcomes, at);
    let counts_2 = counts + (counts >> 8);
    let four = |at: u32| two(at + 2) << byte(counts_2, at) | two(at);
    let counts_4 = counts_2 + (counts_2 >> 16);
    let eight = four(4) << byte(counts_4, 0) | four(0);
    (eight, byte(counts_4 + (counts_4 >> 32), 0) as u8)
}

const fn bytes_of(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_of_outcomes_keep_their_order() {
        let cases: [([u8; 8], u64, u8); 4] = [
            ([1; 8], 0, 0),
            (
                [0b11, 0b10, 0b101, 1, 0b100_0000, 1, 1, 0b11],
                0b100_1000_0001,
                11,
            ),
            ([0b111_1111; 8], (1 << 48) - 1, 48),
            // A zero byte is never logged.
            ([0, 0b1010, 0, 0, 0, 0, 0, 0b10], 0b0100, 4),
        ];
        for (bytes, outcomes, count) in cases {
            assert_eq!(
                combine_outcomes(u64::from_be_bytes(bytes)),
                (outcomes, count),
                "{bytes:?}"
            );
        }
    }
}
