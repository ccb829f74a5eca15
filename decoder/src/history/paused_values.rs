//! Values that were written into a trace while tracing was off between two instructions, in a
//! compact form.

use super::Ptwrite;

/// The number of values in a chunk, which is decoded at once.
const CHUNK: usize = 256;

/// The start of a chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkStart {
    /// The index of its first value.
    index: u64,
    /// The offset of its first byte.
    offset: usize,
}

/// Values with the indexes of the next instructions, in order: about ten bytes each.
///
/// The recorder writes its heap events in this way. A program's own `PTWRITE` is a mark instead.
#[derive(Clone, Debug, Default)]
pub struct PausedValues {
    bytes: Vec<u8>,
    chunks: Vec<ChunkStart>,
    len: usize,
    last: u64,
}

impl PausedValues {
    /// Adds a value. Indexes do not descend.
    pub(crate) fn push(&mut self, index: u64, value: u64) {
        if self.len.is_multiple_of(CHUNK) {
            let offset = self.bytes.len();
            self.chunks.push(ChunkStart { index, offset });
            self.last = index;
        }
        write_number(&mut self.bytes, index.saturating_sub(self.last));
        write_number(&mut self.bytes, value);
        self.last = index.max(self.last);
        self.len += 1;
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the values from instruction `index` on, in order.
    pub fn from(&self, index: u64) -> impl Iterator<Item = Ptwrite> + '_ {
        let first = self.chunk_before(index);
        (first..self.chunks.len())
            .flat_map(|chunk| self.chunk(chunk))
            .skip_while(move |value| value.index < index)
    }

    /// Returns the values before instruction `index`, the last first.
    pub fn before(&self, index: u64) -> impl Iterator<Item = Ptwrite> + '_ {
        let end = self.chunks.partition_point(|chunk| chunk.index < index);
        (0..end)
            .rev()
            .flat_map(|chunk| self.chunk(chunk).into_iter().rev())
            .skip_while(move |value| value.index >= index)
    }

    /// Returns the bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.chunks)
    }

    /// Returns the last chunk that begins before `index`. Values at `index` may begin in it.
    fn chunk_before(&self, index: u64) -> usize {
        let after = self.chunks.partition_point(|chunk| chunk.index < index);
        after.saturating_sub(1)
    }

    fn chunk(&self, number: usize) -> Vec<Ptwrite> {
        let Some(&ChunkStart { mut index, offset }) = self.chunks.get(number) else {
            return Vec::new();
        };
        let end = self.chunks.get(number + 1);
        let end = end.map_or(self.bytes.len(), |chunk| chunk.offset);
        let mut rest = self.bytes.get(offset..end).unwrap_or_default();
        let mut values = Vec::with_capacity(CHUNK);
        while let Some((delta, value)) = read_number(&mut rest).zip(read_number(&mut rest)) {
            index = index.saturating_add(delta);
            values.push(Ptwrite { index, value });
        }
        values
    }
}

/// Writes a number in groups of seven bits, the lowest first (LEB128).
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_are_found_from_and_before_every_index(
            steps in prop::collection::vec((0..3_u64, any::<u64>()), 0..1200),
            at in 0..2500_u64,
        ) {
            let mut values = PausedValues::default();
            let mut all = Vec::new();
            let mut index = 0;
            for (step, value) in steps {
                index += step * step;
                values.push(index, value);
                all.push(Ptwrite { index, value });
            }
            prop_assert_eq!(values.len(), all.len());
            let (before, after): (Vec<_>, Vec<_>) = all.iter().partition(|value| value.index < at);
            let found: Vec<_> = values.from(at).collect();
            prop_assert_eq!(found, after);
            let mut found: Vec<_> = values.before(at).collect();
            found.reverse();
            prop_assert_eq!(found, before);
        }
    }

    #[test]
    fn a_value_takes_few_bytes() {
        let mut values = PausedValues::default();
        for index in 0..10_000 {
            values.push(index * 300, (0x7f00_1234_5670 + index * 32) << 5);
        }
        assert!(values.memory() < 11 * values.len(), "{}", values.memory());
    }
}
