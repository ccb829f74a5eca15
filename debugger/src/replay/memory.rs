//! The memory at a position: by the last access before it, or the first load after it.

use super::accesses::{Access, AccessKind};
use super::{ExecutedPath, MemoryRange, PartSummary, ReplayGap, ThreadReplay};
use backtrail_decoder::Watch;
use backtrail_symbolizer::Unknown;

/// The memory of the core, which is that at the end of the history.
pub trait CoreMemory {
    /// Fills `out` with the memory at an address. Returns whether the core has it.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
}

/// The knowledge of a byte before an instruction, from the accesses of one thread. Each kind but
/// the first has the instruction that decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Byte {
    /// No access was found.
    Open,
    /// The value, by the last access before, or the first one after.
    Known(u8, u64),
    /// Something unknown wrote it before the position.
    Written(u64),
    /// As `Written`, and no load says what it was.
    Hidden(u64),
    /// Something unknown writes it after the position, before it is read.
    Lost(u64),
}

impl Byte {
    /// Returns the value.
    ///
    /// # Errors
    /// Fails with the reason why it is not known.
    pub fn value(self, path: &dyn ExecutedPath) -> Result<u8, Unknown> {
        match self {
            Self::Known(value, _) => Ok(value),
            Self::Written(by) | Self::Hidden(by) => {
                let at = path.position(by);
                Err(format!("the kernel may have written here, at {at}").into())
            }
            Self::Lost(by) => {
                let at = path.position(by);
                Err(format!("nothing read this memory before {at} wrote it").into())
            }
            Self::Open => Err("nothing accessed this memory while values were recorded".into()),
        }
    }

    /// Returns the instruction that decides the byte.
    #[must_use]
    pub const fn decided_at(self) -> Option<u64> {
        match self {
            Self::Known(_, at) | Self::Written(at) | Self::Hidden(at) | Self::Lost(at) => Some(at),
            Self::Open => None,
        }
    }
}

impl ThreadReplay {
    /// Returns the bytes at an address before instruction `index`, by the last access of this
    /// thread before it. `is_whole`: the program was recorded from its start, so that the thread
    /// accessed nothing before its log.
    ///
    /// # Errors
    /// Fails if no values were recorded there, or when canceled.
    pub fn last_accesses(
        &self,
        path: &dyn ExecutedPath,
        index: u64,
        range: MemoryRange,
        is_whole: bool,
        watch: &Watch<'_>,
    ) -> Result<Vec<Byte>, ReplayGap> {
        let number = self.part_at(index).ok_or(ReplayGap::NotRecorded)?;
        let mut bytes = vec![Byte::Open; usize::try_from(range.size).unwrap_or_default()];
        if !self.backward(path, (number, index), range, &mut bytes, watch)? || !is_whole {
            mark(&mut bytes, Byte::Written(self.start_of(0)));
        }
        Ok(bytes)
    }

    /// Completes bytes by the first access of this thread after instruction `index`, or else by the
    /// core.
    ///
    /// # Errors
    /// As with [`Self::last_accesses`].
    pub fn complete_by_later(
        &self,
        path: &dyn ExecutedPath,
        index: u64,
        range: MemoryRange,
        bytes: &mut [Byte],
        core: &dyn CoreMemory,
        watch: &Watch<'_>,
    ) -> Result<(), ReplayGap> {
        let number = self.part_at(index).ok_or(ReplayGap::NotRecorded)?;
        if bytes.iter().copied().any(is_wanted) && self.forward(path, (number, index), range, bytes, watch)? {
            by_core(range.address, bytes, core, path.history().len());
        }
        Ok(())
    }

    /// Searches the accesses before the position, the last first. Returns whether it reached the
    /// beginning of the thread.
    fn backward(
        &self,
        path: &dyn ExecutedPath,
        (number, index): (usize, u64),
        range: MemoryRange,
        bytes: &mut [Byte],
        watch: &Watch<'_>,
    ) -> Result<bool, ReplayGap> {
        for number in (0..=number).rev() {
            let Some(part) = self.parts.get(number) else {
                break;
            };
            let summary = self.summary_of(number, path, watch)?;
            let is_open = |byte: Byte| byte == Byte::Open;
            if !summary.is_complete || may_access(&summary, range.address, bytes, is_open) {
                let accesses = self.accesses_of(number, path, watch)?;
                if accesses.reached < index.min(part.end) {
                    mark(bytes, Byte::Written(accesses.reached));
                    return Ok(false);
                }
                for access in accesses.before(index).iter().rev() {
                    if access.kind == AccessKind::Anywhere {
                        mark(bytes, Byte::Written(access.index));
                        return Ok(false);
                    }
                    let data = accesses.bytes_of(access);
                    each(access, range.address, bytes, |byte, at| {
                        if *byte == Byte::Open {
                            *byte = match access.kind {
                                AccessKind::Kernel => Byte::Written(access.index),
                                _ => data
                                    .get(at)
                                    .map_or(Byte::Open, |&value| Byte::Known(value, access.index)),
                            };
                        }
                    });
                    if bytes.iter().all(|byte| *byte != Byte::Open) {
                        return Ok(false);
                    }
                }
            }
            if number == 0 && self.begins_with_thread() {
                return Ok(true);
            }
            if !self.part_continues(number, path, watch)? {
                mark(bytes, Byte::Written(part.start));
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Searches the accesses after the position for loads. Returns whether the end of the history
    /// was reached.
    fn forward(
        &self,
        path: &dyn ExecutedPath,
        (number, index): (usize, u64),
        range: MemoryRange,
        bytes: &mut [Byte],
        watch: &Watch<'_>,
    ) -> Result<bool, ReplayGap> {
        for number in number..self.parts.len() {
            let Some(part) = self.parts.get(number) else {
                break;
            };
            let summary = self.summary_of(number, path, watch)?;
            if may_access(&summary, range.address, bytes, is_wanted) {
                let accesses = self.accesses_of(number, path, watch)?;
                for access in accesses.from(index) {
                    if access.kind == AccessKind::Anywhere {
                        lose(bytes, access.index);
                        return Ok(false);
                    }
                    let data = accesses.bytes_of(access);
                    each(access, range.address, bytes, |byte, at| {
                        if is_wanted(*byte) {
                            *byte = match access.kind {
                                AccessKind::Load => data
                                    .get(at)
                                    .map_or(*byte, |&value| Byte::Known(value, access.index)),
                                _ => lost(*byte, access.index),
                            };
                        }
                    });
                    if !bytes.iter().copied().any(is_wanted) {
                        return Ok(false);
                    }
                }
            }
            let next = number + 1;
            if !summary.is_complete || next < self.parts.len() && !self.part_continues(next, path, watch)? {
                lose(bytes, self.end_of_segment(part));
                return Ok(false);
            }
        }
        let end = self.segments.last().map_or(0, |segment| segment.end);
        Ok(end == path.history().len())
    }
}

/// Returns whether a part may access one of the bytes at an address that are still searched.
fn may_access(
    summary: &PartSummary,
    address: u64,
    bytes: &[Byte],
    is_searched: impl Fn(Byte) -> bool,
) -> bool {
    let mut at = address;
    let mut runs = bytes.chunk_by(|one, next| is_searched(*one) == is_searched(*next));
    runs.any(|run| {
        let range = MemoryRange {
            address: at,
            size: run.len() as u64,
        };
        at = at.wrapping_add(range.size);
        run.first().is_some_and(|byte| is_searched(*byte)) && summary.may_access(range)
    })
}

/// Takes bytes that nothing wrote since from the core.
fn by_core(address: u64, bytes: &mut [Byte], core: &dyn CoreMemory, end: u64) {
    for (offset, byte) in (0_u64..).zip(bytes.iter_mut()) {
        let mut value = [0];
        // A wild pointer may end with the address space.
        if is_wanted(*byte) && core.read(address.wrapping_add(offset), &mut value) {
            *byte = Byte::Known(value[0], end);
        }
    }
}

/// Returns whether a later load says what a byte was.
fn is_wanted(byte: Byte) -> bool {
    matches!(byte, Byte::Open | Byte::Written(_))
}

/// Returns a byte that is written before it is read. An unknown write before the position stays the
/// reason.
fn lost(byte: Byte, by: u64) -> Byte {
    match byte {
        Byte::Written(writer) => Byte::Hidden(writer),
        _ => Byte::Lost(by),
    }
}

fn mark(bytes: &mut [Byte], how: Byte) {
    for byte in bytes.iter_mut().filter(|byte| **byte == Byte::Open) {
        *byte = how;
    }
}

fn lose(bytes: &mut [Byte], by: u64) {
    for byte in bytes.iter_mut().filter(|byte| is_wanted(**byte)) {
        *byte = lost(*byte, by);
    }
}

/// Calls `visit` with each byte that an access covers, and its place in the access.
fn each(access: &Access, address: u64, bytes: &mut [Byte], mut visit: impl FnMut(&mut Byte, usize)) {
    for (offset, byte) in (0_u64..).zip(bytes.iter_mut()) {
        let at = address.wrapping_add(offset).wrapping_sub(access.address);
        if at < access.size {
            visit(byte, at as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core in which each byte is 7.
    struct Sevens;

    impl CoreMemory for Sevens {
        fn read(&self, _: u64, out: &mut [u8]) -> bool {
            out.fill(7);
            true
        }
    }

    #[test]
    fn bytes_at_the_end_of_the_address_space_are_read() {
        let mut bytes = [Byte::Open; 2];
        by_core(u64::MAX - 1, &mut bytes, &Sevens, 3);
        assert_eq!(bytes, [Byte::Known(7, 3); 2]);
    }
}
