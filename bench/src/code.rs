//! The code of a process as the peers want it: stretches that do not overlap, in files or in memory.

use backtrail_decoder::Image;
use backtrail_pt::Avma;
use std::io;
use std::path::PathBuf;
use tempfile::TempDir;

/// A stretch of code.
pub struct Piece {
    /// The first address.
    pub start: u64,
    /// What lies there.
    pub bytes: Vec<u8>,
}

/// The code as it was at the beginning, ascending: of modules, of the vdso, of memory that was saved.
pub fn pieces(image: &Image) -> Vec<Piece> {
    image
        .ranges()
        .map(|(first, last)| Piece {
            start: first.0,
            bytes: read(image, first, last.0.saturating_sub(first.0).saturating_add(1)),
        })
        .collect()
}

fn read(image: &Image, from: Avma, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match image.read(from + done as u64, rest) {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    bytes
}

/// Each piece in a file of its own; they live as long as the folder.
pub fn write(pieces: &[Piece]) -> io::Result<(TempDir, Vec<PathBuf>)> {
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    for piece in pieces {
        let path = folder.path().join(format!("{:x}", piece.start));
        std::fs::write(&path, &piece.bytes)?;
        files.push(path);
    }
    Ok((folder, files))
}
