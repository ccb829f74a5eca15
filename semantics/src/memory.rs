//! The memory that a model reads and writes, and the reasons for which a model stops.

/// Memory by address. A model asks for its bytes in the order in which the processor reads them.
pub trait Memory {
    /// The reason for which bytes are unknown.
    type Error;

    /// Fills `bytes` with the memory at an address.
    ///
    /// # Errors
    /// Fails if a byte is unknown. The model then changes neither registers nor memory, except for
    /// the finished elements of a repeated string instruction.
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Fills the bytes whose bit in `enabled` is set with the memory at an address. All others are
    /// zero. The lowest bit is that of the first byte. There are at most 64 bytes.
    ///
    /// # Errors
    /// Fails if one of these bytes is unknown.
    fn load_masked(&mut self, address: u64, bytes: &mut [u8], enabled: u64) -> Result<(), Self::Error> {
        bytes.fill(0);
        for (at, part) in enabled_runs(bytes, enabled) {
            self.load(address.wrapping_add(at), part)?;
        }
        Ok(())
    }

    /// Notes that bytes are stored at an address.
    ///
    /// # Errors
    /// Fails if nothing can be stored there.
    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// Returns the longest runs of bytes whose bit in `enabled` is set, each with its offset.
pub fn enabled_runs(bytes: &mut [u8], enabled: u64) -> impl Iterator<Item = (u64, &mut [u8])> {
    let (mut rest, mut at) = (bytes, 0_u32);
    std::iter::from_fn(move || {
        let left = enabled.checked_shr(at)?;
        let skipped = left.trailing_zeros();
        let len = left.checked_shr(skipped)?.trailing_ones();
        let (_, from) = std::mem::take(&mut rest).split_at_mut_checked(skipped as usize)?;
        let (run, after) = from.split_at_mut(from.len().min(len as usize));
        let start = u64::from(at + skipped);
        rest = after;
        at += skipped + len;
        (!run.is_empty()).then_some((start, run))
    })
}

/// The reason for which a model stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop<E> {
    /// Memory is unknown.
    #[error("memory is unknown: {0}")]
    Memory(E),
    /// A flag or a result that the manual leaves undefined would decide.
    #[error("the result depends on a value that the manual leaves undefined")]
    Undefined,
    /// The quotient of a division does not exist, or has no place.
    #[error("the division has no result")]
    Division,
    /// MXCSR asks for another rounding or for denormals as zero.
    #[error("the rounding mode is not the default")]
    Rounding,
}

/// A memory without bytes, for instructions that use registers alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemory;

impl Memory for NoMemory {
    type Error = NoBytes;

    fn load(&mut self, _address: u64, _bytes: &mut [u8]) -> Result<(), NoBytes> {
        Err(NoBytes)
    }

    fn store(&mut self, _address: u64, _bytes: &[u8]) -> Result<(), NoBytes> {
        Err(NoBytes)
    }
}

/// The error of [`NoMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory")]
pub struct NoBytes;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_the_enabled_bytes(len in 0_usize..=64, enabled: u64) {
            let mut bytes = vec![0; len];
            for (at, run) in enabled_runs(&mut bytes, enabled) {
                prop_assert_eq!(enabled >> at & 1, 1);
                run.fill(1);
            }
            for (at, byte) in bytes.iter().enumerate() {
                prop_assert_eq!(u64::from(*byte), enabled >> at & 1);
            }
        }
    }

    #[test]
    fn neighbors_are_one_run() {
        let mut bytes = [0; 64];
        let mut runs = |enabled| -> Vec<(u64, usize)> {
            let runs = enabled_runs(&mut bytes, enabled);
            runs.map(|(at, run)| (at, run.len())).collect()
        };
        assert_eq!(runs(0), []);
        assert_eq!(runs(u64::MAX), [(0, 64)]);
        assert_eq!(runs(0b1110_0110), [(1, 2), (5, 3)]);
        assert_eq!(runs(1 << 63), [(63, 1)]);
    }
}
