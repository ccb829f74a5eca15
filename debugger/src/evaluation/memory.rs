//! Reads the known memory at the position of a navigator.

use super::with_context;
use crate::error::Result;
use crate::navigator::Navigator;
use backtrail_decoder::Watch;
use backtrail_pt::Avma;

/// No more is read at once.
pub const MAX_READ: u64 = 1 << 20;
/// Memory is read in pieces of this size, and byte by byte at the edges of known memory.
const PIECE: u64 = 256;

/// Some bytes of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The first of them that are known without a hole.
    pub bytes: Vec<u8>,
    /// The reason why the next byte is unknown; `None` if all bytes were read.
    pub unknown: Option<String>,
}

/// The bytes from an address on, at most [`MAX_READ`]: those of memory where they are known, else
/// those of the code that ran.
///
/// # Errors
/// When canceled.
pub fn read(navigator: &Navigator, at: u64, count: u64, watch: &Watch<'_>) -> Result<Read> {
    let count = count.min(MAX_READ);
    let process = navigator.process()?;
    let version = navigator.thread()?.history.version(navigator.index());
    with_context(navigator, watch, |context| {
        let mut read = Read::default();
        let known = |from: u64, size: u64, out: &mut Vec<u8>| {
            let mut piece = vec![0; size as usize];
            let in_memory = context.source.memory(from, &mut piece);
            let found = match in_memory {
                Ok(()) => Ok(()),
                Err(why) => match process.read(version, Avma(from), &mut piece) as u64 == size {
                    true => Ok(()),
                    false => Err(why.to_string()),
                },
            };
            found.map(|()| out.extend(piece))
        };
        while (read.bytes.len() as u64) < count {
            let done = read.bytes.len() as u64;
            let Some(from) = at.checked_add(done) else {
                read.unknown = Some("the address space ends here".to_owned());
                break;
            };
            let size = (count - done).min(PIECE);
            let whole = known(from, size, &mut read.bytes);
            if whole.is_ok() {
                continue;
            }
            if let Err(why) = known(from, 1, &mut read.bytes) {
                read.unknown = Some(why);
                break;
            }
        }
        Ok(read)
    })
}
