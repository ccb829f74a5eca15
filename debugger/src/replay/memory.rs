//! The memory at a position: by the last access before it, or the first load after it.

use super::accesses::{Access, AccessKind};
use super::{ExecutedPath, ReplayGap, ThreadReplay};
use backtrail_decoder::Watch;
use backtrail_semantics::State;
use backtrail_symbolizer::Unknown;

/// The memory of the core, which is that at the end of the history.
pub trait CoreMemory {
    /// Fills `out` with the memory at an address. Returns whether the core has it.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
}

/// A byte whose value is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    /// No access was found yet.
    Open,
    /// The value.
    Known(u8),
    /// Something unknown wrote it before the position, at this instruction.
    Written(u64),
    /// As `Written`, and no load says what it was.
    Hidden(u64),
    /// Something unknown writes it after the position, before it is read.
    Lost(u64),
}

impl ThreadReplay {
    /// Fills `out` with the memory at an address before instruction `index`.
    ///
    /// # Errors
    /// Fails with the reason if a byte is not known.
    pub fn memory_at(
        &self,
        path: &dyn ExecutedPath,
        index: u64,
        address: u64,
        out: &mut [u8],
        core: &dyn CoreMemory,
        watch: &Watch<'_>,
    ) -> Result<(), Unknown> {
        let number = self.segment_at(index);
        let number = number.ok_or_else(|| ReplayGap::NotRecorded.reason(path))?;
        let mut bytes = vec![Byte::Open; out.len()];
        let gap = |gap: ReplayGap| gap.reason(path);
        self.backward(path, (number, index), address, &mut bytes, watch)
            .map_err(gap)?;
        if bytes.iter().any(|byte| !matches!(byte, Byte::Known(_))) {
            let at_end = self
                .forward(path, (number, index), address, &mut bytes, watch)
                .map_err(gap)?;
            if at_end {
                self.by_core(address, &mut bytes, core);
            }
        }
        for (byte, out) in bytes.iter().zip(out.iter_mut()) {
            *out = match *byte {
                Byte::Known(value) => value,
                Byte::Written(by) | Byte::Hidden(by) => {
                    let at = path.position(by);
                    return Err(format!("the kernel may have written here, at {at}").into());
                }
                Byte::Lost(by) => {
                    let at = path.position(by);
                    return Err(format!("nothing read this memory before {at} wrote it").into());
                }
                Byte::Open => return Err("nothing accessed this memory while values were recorded".into()),
            };
        }
        Ok(())
    }

    /// Searches the accesses before the position, the last first.
    fn backward(
        &self,
        path: &dyn ExecutedPath,
        (number, index): (usize, u64),
        address: u64,
        bytes: &mut [Byte],
        watch: &Watch<'_>,
    ) -> Result<(), ReplayGap> {
        for number in (0..=number).rev() {
            let accesses = self.accesses_of(number, path, watch)?;
            for access in accesses.before(index).iter().rev() {
                if access.kind == AccessKind::Anywhere {
                    mark(bytes, Byte::Written(access.index));
                    return Ok(());
                }
                let data = accesses.bytes_of(access);
                each(access, address, bytes, |byte, at| {
                    if *byte == Byte::Open {
                        *byte = match access.kind {
                            AccessKind::Kernel => Byte::Written(access.index),
                            _ => data.get(at).map_or(Byte::Open, |&value| Byte::Known(value)),
                        };
                    }
                });
                if bytes.iter().all(|byte| *byte != Byte::Open) {
                    return Ok(());
                }
            }
            if !self.continues(number, path, watch)? {
                mark(bytes, Byte::Written(accesses.start()));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns whether nothing happened between the end of the segment before and its beginning.
    fn continues(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<bool, ReplayGap> {
        let Some(before) = number.checked_sub(1) else {
            return Ok(false);
        };
        let (Some(earlier), Some(later)) = (self.segments.get(before), self.segments.get(number)) else {
            return Ok(false);
        };
        if earlier.end != later.start {
            return Ok(false);
        }
        let accesses = self.accesses_of(before, path, watch)?;
        let start = self.begin(number)?;
        Ok(accesses.is_complete
            && accesses
                .end
                .as_ref()
                .is_some_and(|end| is_same(end, start.state())))
    }

    /// Searches the accesses after the position for loads. Returns whether the end of the history
    /// was reached.
    fn forward(
        &self,
        path: &dyn ExecutedPath,
        (number, index): (usize, u64),
        address: u64,
        bytes: &mut [Byte],
        watch: &Watch<'_>,
    ) -> Result<bool, ReplayGap> {
        for number in number..self.segments.len() {
            let accesses = self.accesses_of(number, path, watch)?;
            for access in accesses.from(index) {
                if access.kind == AccessKind::Anywhere {
                    lose(bytes, access.index);
                    return Ok(false);
                }
                let data = accesses.bytes_of(access);
                each(access, address, bytes, |byte, at| {
                    if is_wanted(*byte) {
                        *byte = match access.kind {
                            AccessKind::Load => data.get(at).map_or(*byte, |&value| Byte::Known(value)),
                            _ => lost(*byte, access.index),
                        };
                    }
                });
                if !bytes.iter().copied().any(is_wanted) {
                    return Ok(false);
                }
            }
            if !accesses.is_complete {
                lose(bytes, accesses.start());
                return Ok(false);
            }
            let next = number + 1;
            if next < self.segments.len() && !self.continues(next, path, watch)? {
                let at = self.segments.get(next).map_or(0, |segment| segment.start);
                lose(bytes, at);
                return Ok(false);
            }
        }
        let end = self.segments.last().map_or(0, |segment| segment.end);
        Ok(end == path.history().len())
    }

    /// Takes bytes that nothing wrote since from the core.
    fn by_core(&self, address: u64, bytes: &mut [Byte], core: &dyn CoreMemory) {
        for (at, byte) in (address..).zip(bytes.iter_mut()) {
            let mut value = [0];
            if is_wanted(*byte) && core.read(at, &mut value) {
                *byte = Byte::Known(value[0]);
            }
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

/// Returns whether two states have the same registers. Flags that are undefined in one may differ.
fn is_same(left: &State, right: &State) -> bool {
    let undefined = left.undefined | right.undefined;
    left.general == right.general
        && (left.flags ^ right.flags) & !undefined == 0
        && left.vectors == right.vectors
        && left.masks == right.masks
        && left.bases == right.bases
}
