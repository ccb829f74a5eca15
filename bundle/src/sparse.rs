//! Files with holes in place of pages of zeros.

use std::io::{self, Seek, Write};

/// The smallest hole of common file systems, in bytes.
const PAGE: usize = 4096;

/// Writes bytes, and leaves holes for pages of zeros, which are common in memory. A hole at the end
/// of a file needs `File::set_len`.
///
/// # Errors
/// Fails if writing or seeking fails.
pub(crate) fn write_sparse<W: Write + Seek>(out: &mut W, bytes: &[u8]) -> io::Result<()> {
    for page in bytes.chunks(PAGE) {
        if page.iter().all(|byte| *byte == 0) {
            out.seek_relative(page.len() as i64)?;
        } else {
            out.write_all(page)?;
        }
    }
    Ok(())
}
