//! How long nothing was taken out of the trace.

use crate::engine::native::code::Exit;

/// Counts what runs between two packets.
///
/// A program that ran cannot repeat itself between two packets (but for `jmp .`, which nobody leaves
/// without one), so far beyond what real code does without one, the code is not what ran.
#[derive(Default)]
pub(super) struct Quiet {
    instructions: u32,
    direct: u32,
}

impl Quiet {
    /// Straight code this long without any branch that gives a packet (a quarter of a megabyte).
    const MAX_INSTRUCTIONS: u32 = 1 << 16;
    /// Direct jumps and calls one after the other, with nothing between that gives a packet.
    const MAX_DIRECT: u32 = 1 << 12;

    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The last instruction that ran gave a packet.
    pub fn branched(&mut self) {
        (self.instructions, self.direct) = (1, 0);
    }

    /// `count` instructions run, of which the last leaves by `exit`. `Some`: how many of them until the
    /// bound is passed.
    #[inline]
    pub fn runs_away(&mut self, count: u32, exit: Exit) -> Option<u32> {
        let room = Self::MAX_INSTRUCTIONS - self.instructions;
        match exit {
            Exit::Through | Exit::Gone => {
                if count > room {
                    return Some(room + 1);
                }
                self.instructions += count;
            }
            Exit::Jump { .. } | Exit::Call { .. } => {
                if count > room {
                    return Some(room + 1);
                }
                self.instructions += count;
                self.direct += 1;
                if self.direct > Self::MAX_DIRECT {
                    return Some(count);
                }
            }
            _ => {
                if count - 1 > room {
                    return Some(room + 1);
                }
                self.branched();
            }
        }
        None
    }
}
