//! Reads lz4 files of any number of frames, and finds whether the last one is complete.

use lz4_flex::frame::FrameDecoder;
use std::io::{self, BufRead, Read};

/// The first bytes of a frame.
pub(super) const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// The first bytes of a file in the legacy format, whose blocks end with the file.
pub(super) const LEGACY_MAGIC: [u8; 4] = 0x184c_2102_u32.to_le_bytes();

/// A reader of consecutive frames.
pub(super) struct Lz4Frames<R: BufRead> {
    decoder: FrameDecoder<R>,
}

impl<R: BufRead> Lz4Frames<R> {
    pub(super) fn new(file: R) -> Self {
        Self {
            decoder: FrameDecoder::new(file),
        }
    }
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.decoder.read(out)?;
            // The decoder returns 0 after each frame and for an empty block.
            if read != 0 || out.is_empty() || self.decoder.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
        }
    }
}

/// Returns whether the last frame of a file has its end mark. The decoder does not report a file
/// that ends between two blocks.
///
/// The legacy format has no end mark. Other contents are left to the decoder.
pub(super) fn is_complete(file: &[u8]) -> bool {
    let mut at = 0;
    while at < file.len() {
        let Some(magic) = word(file, at) else {
            return false;
        };
        let end = match magic.to_le_bytes() {
            MAGIC => frame_end(file, at),
            // A skippable frame.
            [low, 0x2a, 0x4d, 0x18] if low & 0xf0 == 0x50 => {
                word(file, at + 4).map(|size| at.saturating_add(8 + size as usize))
            }
            _ => return true,
        };
        match end {
            Some(end) if end <= file.len() => at = end,
            _ => return false,
        }
    }
    true
}

/// Returns the offset after the frame at `at`, or `None` if the file ends before.
fn frame_end(file: &[u8], at: usize) -> Option<usize> {
    let flags = *file.get(at + 4)?;
    let size_if = |bit: u8, size: usize| if flags & bit == 0 { 0 } else { size };
    let (block_checksum, content_checksum) = (size_if(0x10, 4), size_if(0x04, 4));
    // Magic, flags, block size, size of the contents, dictionary and checksum of the header.
    let mut at = at + 7 + size_if(0x08, 8) + size_if(0x01, 4);
    loop {
        let block = word(file, at)?;
        at += 4;
        if block == 0 {
            return Some(at + content_checksum);
        }
        // The highest bit marks a block that is not compressed.
        at = at.saturating_add((block & 0x7fff_ffff) as usize + block_checksum);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;

    fn frame(contents: &[u8], has_checksums: bool) -> Vec<u8> {
        let info = FrameInfo::new()
            .block_size(BlockSize::Max64KB)
            .block_checksums(has_checksums)
            .content_checksum(has_checksums);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_cut_of_a_frame_is_incomplete() {
        let contents: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
        for has_checksums in [false, true] {
            let whole = frame(&contents, has_checksums);
            assert!(is_complete(&whole));
            let cut = (1..whole.len()).find(|end| is_complete(&whole[..*end]));
            assert_eq!(cut, None);
            let two = [whole.clone(), whole.clone()].concat();
            let cuts: Vec<usize> = (1..two.len()).filter(|end| is_complete(&two[..*end])).collect();
            assert_eq!(cuts, [whole.len()]);
        }
    }

    #[test]
    fn frames_after_empty_ones_are_read() {
        let file = [
            frame(b"one", false),
            frame(b"", true),
            frame(b"", false),
            frame(b"two", true),
        ];
        let file = file.concat();
        let mut out = Vec::new();
        Lz4Frames::new(&*file).read_to_end(&mut out).unwrap();
        assert_eq!(out, b"onetwo");
        assert!(is_complete(&file));
    }
}
