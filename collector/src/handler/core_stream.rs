//! The core as the handler passes it on.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The core. The daemon may have read a part of it.
#[derive(Debug, Default)]
pub(super) struct CoreStream {
    /// The file with the part that the daemon has read and returned, and its size.
    pub(super) taken: Option<(File, u64)>,
    /// The part that was in the pipe to the daemon.
    pub(super) leftover: Vec<u8>,
    /// Whether the daemon has read a part without returning it.
    pub(super) is_broken: bool,
}

impl CoreStream {
    /// Returns a reader of the whole core.
    pub(super) fn read(self) -> io::Result<impl Read> {
        let taken: Box<dyn Read> = match self.taken {
            Some((mut file, bytes)) => {
                file.seek(SeekFrom::Start(0))?;
                Box::new(file.take(bytes))
            }
            None => Box::new(io::empty()),
        };
        let first = taken.chain(io::Cursor::new(self.leftover));
        Ok(first.chain(io::stdin().lock()))
    }
}
