//! The code of a process for the peers: disjoint ranges, in files or in memory.

use backtrail_decoder::Image;
use backtrail_pt::Avma;
use std::io;
use std::path::PathBuf;
use tempfile::TempDir;

/// A range of code.
pub struct CodeRange {
    /// The first address.
    pub start: u64,
    /// The code.
    pub bytes: Vec<u8>,
}

/// Returns the initial code in address order: modules, the vdso, and saved memory.
pub fn ranges(image: &Image) -> Vec<CodeRange> {
    image
        .ranges()
        .map(|(first, last)| CodeRange {
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

/// Writes each range to its own file. The files are removed with the directory.
pub fn write(ranges: &[CodeRange]) -> io::Result<(TempDir, Vec<PathBuf>)> {
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    for range in ranges {
        let path = folder.path().join(format!("{:x}", range.start));
        std::fs::write(&path, &range.bytes)?;
        files.push(path);
    }
    Ok((folder, files))
}
