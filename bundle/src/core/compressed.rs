//! Reads core files as crash handlers store them: plain, or compressed by zstd, xz, gzip or lz4.
//!
//! A compressed core is unpacked into a sparse temporary file without a name, which the kernel
//! removes when its last user ends.

use super::lz4::{self, Lz4Frames};
use crate::{Error, Result, SharedBytes, platform};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The number of bytes that are unpacked at once.
const PIECE: usize = 1 << 20;
/// Blocks of zeros of this size become holes.
const BLOCK: usize = crate::PAGE_SIZE as usize;
/// The first bytes of an ELF file.
const ELF_MAGIC: &[u8] = b"\x7fELF";
/// The part of the free disk space that an unpacked core may use: nine tenths.
const DISK_TENTHS: u64 = 9;

/// A compression format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Zstd,
    Xz,
    Gzip,
    Lz4,
    /// Recognized, and not supported.
    Bzip2,
    /// A report with an encoded core. Recognized, and not supported.
    Apport,
}

impl Format {
    /// Returns the format that a file's first bytes announce.
    fn of(first: &[u8]) -> Option<Self> {
        let begins = |magic: &[u8]| first.starts_with(magic);
        match first {
            _ if begins(b"\x28\xb5\x2f\xfd") => Some(Self::Zstd),
            // A skippable frame of zstd or lz4. Only compressors of zstd write them first.
            [low, b'\x2a', b'\x4d', b'\x18', ..] if low & 0xf0 == 0x50 => Some(Self::Zstd),
            _ if begins(b"\xfd7zXZ\x00") => Some(Self::Xz),
            _ if begins(b"\x1f\x8b") => Some(Self::Gzip),
            _ if begins(&lz4::MAGIC) || begins(&lz4::LEGACY_MAGIC) => Some(Self::Lz4),
            _ if begins(b"BZh") => Some(Self::Bzip2),
            _ if begins(b"ProblemT") => Some(Self::Apport),
            _ => None,
        }
    }

    /// Returns the command that unpacks a file to standard output.
    fn command(self) -> &'static str {
        match self {
            Self::Zstd => "zstd -dc",
            Self::Xz => "xz -dc",
            Self::Gzip => "gzip -dc",
            Self::Lz4 => "lz4 -dc",
            Self::Bzip2 => "bzip2 -dc",
            Self::Apport => "apport-unpack",
        }
    }

    /// Returns the command line with which a user unpacks a file.
    fn command_line(self, path: &Path) -> String {
        let (command, path) = (self.command(), path.display());
        match self {
            Self::Apport => format!("{command} {path} DIR, which writes DIR/CoreDump"),
            _ => format!("{command} {path} > core"),
        }
    }

    /// Returns the reason why a format is not supported.
    fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Bzip2 => Some("cores compressed by bzip2 are not read"),
            Self::Apport => Some("cores in reports of Apport are not read"),
            _ => None,
        }
    }
}

/// The bounds of unpacking a core.
#[derive(Clone, Copy, Debug)]
pub struct UnpackLimits {
    /// The most bytes of the unpacked core, holes included.
    pub size: u64,
    /// The most memory for a decompressor's window, in bytes.
    pub window: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self {
            size: 256 << 30,
            window: 256 << 20,
        }
    }
}

/// The contents of a core file.
#[derive(Debug)]
pub struct CoreFile {
    /// The plain core.
    pub bytes: SharedBytes,
    /// The unpacked file of a compressed core.
    pub(crate) unpacked: Option<File>,
    /// A sentence for the reader if the compressed file ends early.
    pub note: Option<String>,
}

/// Returns whether a regular file is an ELF file, or one that is compressed.
///
/// A packed bundle is compressed by zstd as well, and is not one.
#[must_use]
pub fn is_core_file(path: &Path) -> bool {
    // To open a pipe would wait for a writer.
    if !path.is_file() {
        return false;
    }
    let mut first = [0; 8];
    let Some(read) = File::open(path)
        .ok()
        .and_then(|file| read_all(file, &mut first).ok())
    else {
        return false;
    };
    let first = first.get(..read).unwrap_or_default();
    match Format::of(first) {
        None => first.starts_with(ELF_MAGIC),
        Some(Format::Zstd) => begins_as_elf(path, Format::Zstd),
        // No bundle is compressed so.
        Some(_) => true,
    }
}

fn begins_as_elf(path: &Path, format: Format) -> bool {
    let unpack = || -> io::Result<[u8; 4]> {
        let mut first = [0; 4];
        let reader = decoder(format, File::open(path)?, &UnpackLimits::default())?;
        read_all(reader, &mut first)?;
        Ok(first)
    };
    unpack().is_ok_and(|first| first == ELF_MAGIC)
}

/// Opens a core file, and unpacks it if it is compressed.
///
/// `proceed` gets the number of compressed bytes read and their total. It returns whether to go on.
///
/// # Errors
/// Fails if the file cannot be read, if it is damaged, if it exceeds the limits, or when canceled.
pub fn open_core_file(
    path: &Path,
    limits: &UnpackLimits,
    mut proceed: impl FnMut(u64, u64) -> bool,
) -> Result<CoreFile> {
    let bytes = SharedBytes::map_file(path)?;
    let Some(format) = Format::of(&bytes) else {
        return Ok(CoreFile {
            bytes,
            unpacked: None,
            note: None,
        });
    };
    if let Some(refusal) = format.refusal() {
        let problem = format!("{refusal}; unpack it first: {}", format.command_line(path));
        return Err(Error::unsupported(path.display(), problem));
    }
    let total = bytes.len() as u64;
    let is_complete = format != Format::Lz4 || lz4::is_complete(&bytes);
    drop(bytes);
    let compressed = File::open(path).map_err(Error::io("open", path))?;
    let directory = unpack_directory();
    let out = tempfile::tempfile_in(&directory).map_err(Error::io("create a file in", &directory))?;
    let mut unpacking = Unpacking {
        path,
        format,
        limits,
        disk: free_space(&directory),
        directory,
    };
    let truncated = unpacking.run(compressed, &out, &mut |done| proceed(done, total))? || !is_complete;
    let bytes = SharedBytes::map_open(&out, path)?;
    if !bytes.starts_with(ELF_MAGIC) {
        let problem = "this compressed file does not contain an ELF core";
        return Err(Error::malformed(path.display(), problem));
    }
    let note = truncated.then(|| {
        format!(
            "the compressed core {} ends early: the memory after its first {} bytes is missing",
            path.display(),
            bytes.len()
        )
    });
    Ok(CoreFile {
        bytes,
        unpacked: Some(out),
        note,
    })
}

/// The unpacking of one file.
struct Unpacking<'a> {
    path: &'a Path,
    format: Format,
    limits: &'a UnpackLimits,
    /// The number of bytes that may still be written to disk.
    disk: u64,
    directory: PathBuf,
}

impl Unpacking<'_> {
    /// Writes the unpacked contents to `out`. Returns whether the compressed data ends early.
    fn run(&mut self, compressed: File, out: &File, proceed: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        let consumed = Rc::new(Cell::new(0));
        let counted = CountingReader {
            inner: compressed,
            count: Rc::clone(&consumed),
        };
        let mut reader = decoder(self.format, counted, self.limits).map_err(|error| self.damaged(&error))?;
        let mut piece = vec![0; PIECE];
        let mut at = 0u64;
        let truncated = loop {
            if !proceed(consumed.get()) {
                return Err(Error::Canceled);
            }
            let (got, end) = fill(&mut reader, &mut piece);
            let data = piece.get(..got).unwrap_or_default();
            if at.saturating_add(got as u64) > self.limits.size {
                return Err(self.too_large(format!("it unpacks to more than {} bytes", self.limits.size)));
            }
            if at == 0 && !ELF_MAGIC.starts_with(data.get(..4).unwrap_or(data)) {
                let problem = "this compressed file does not contain an ELF core";
                return Err(Error::malformed(self.path.display(), problem));
            }
            self.write_sparse(out, at, data)?;
            at += got as u64;
            match end {
                None => {}
                Some(End::Complete) => break false,
                Some(End::Failed(error)) if error.kind() == ErrorKind::UnexpectedEof && at != 0 => {
                    break true;
                }
                Some(End::Failed(error)) => return Err(self.damaged(&error)),
            }
        };
        // A trailing hole does not extend the file.
        out.set_len(at).map_err(Error::io("write", &self.directory))?;
        Ok(truncated)
    }

    /// Writes the blocks that are not zero.
    fn write_sparse(&mut self, out: &File, at: u64, data: &[u8]) -> Result<()> {
        for (index, block) in data.chunks(BLOCK).enumerate() {
            if block.iter().all(|byte| *byte == 0) {
                continue;
            }
            let Some(left) = self.disk.checked_sub(block.len() as u64) else {
                let directory = self.directory.display();
                return Err(self.too_large(format!(
                    "it does not fit into {directory}; set TMPDIR to another directory"
                )));
            };
            self.disk = left;
            let offset = at + (index * BLOCK) as u64;
            platform::write_all_at(out, block, offset)
                .map_err(Error::io("write an unpacked core to", &self.directory))?;
        }
        Ok(())
    }

    fn too_large(&self, problem: String) -> Error {
        let hint = self.format.command_line(self.path);
        Error::unsupported(
            self.path.display(),
            format!("{problem}; or unpack it yourself: {hint}"),
        )
    }

    fn damaged(&self, error: &io::Error) -> Error {
        let problem = match error.kind() {
            ErrorKind::OutOfMemory => {
                let hint = self.format.command_line(self.path);
                return Error::unsupported(
                    self.path.display(),
                    format!("its compression needs too much memory; unpack it yourself: {hint}"),
                );
            }
            ErrorKind::UnexpectedEof => "the compressed core ends before its first part".to_owned(),
            _ => format!("the compressed core is damaged ({error})"),
        };
        Error::malformed(self.path.display(), problem)
    }
}

/// Returns the directory for unpacked cores: `TMPDIR`, or else `/var/tmp`, which is on a disk.
/// `/tmp` is memory on many systems.
fn unpack_directory() -> PathBuf {
    let disk = Path::new("/var/tmp");
    match std::env::var_os("TMPDIR").filter(|set| !set.is_empty()) {
        None if disk.is_dir() => disk.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Returns how many bytes may be written to a directory's file system. An unknown size is no limit,
/// because writing then fails in time.
fn free_space(directory: &Path) -> u64 {
    fs4::available_space(directory).map_or(u64::MAX, |free| free / 10 * DISK_TENTHS)
}

/// The end of a compressed file.
enum End {
    Complete,
    Failed(io::Error),
}

/// Fills a piece. Data before an error is kept.
fn fill(reader: &mut dyn Read, piece: &mut [u8]) -> (usize, Option<End>) {
    // Some decoders discard what they read before an error, so little is read at once.
    const STEP: usize = 16 << 10;
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let step = rest.len().min(STEP);
        match reader.read(rest.get_mut(..step).unwrap_or_default()) {
            Ok(0) => return (filled, Some(End::Complete)),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(End::Failed(error))),
        }
    }
    (filled, None)
}

/// Reads until `out` is full or the input ends, and returns the number of bytes.
fn read_all(mut reader: impl Read, out: &mut [u8]) -> io::Result<usize> {
    match fill(&mut reader, out) {
        (read, None | Some(End::Complete)) => Ok(read),
        (_, Some(End::Failed(error))) => Err(error),
    }
}

/// Returns a reader of the unpacked data. It reads all frames or members of the file.
fn decoder<'a>(
    format: Format,
    file: impl Read + 'a,
    limits: &UnpackLimits,
) -> io::Result<Box<dyn Read + 'a>> {
    let file = BufReader::with_capacity(1 << 18, file);
    Ok(match format {
        Format::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(file)?;
            decoder.window_log_max(limits.window.max(1 << 10).ilog2())?;
            Box::new(decoder)
        }
        Format::Xz => {
            let kib = u32::try_from(limits.window >> 10).unwrap_or(u32::MAX);
            Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, kib))
        }
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Format::Lz4 => Box::new(Lz4Frames::new(file)),
        Format::Bzip2 | Format::Apport => return Err(io::Error::other("this format is not supported")),
    })
}

/// A reader that counts what was read.
struct CountingReader<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzEncoder;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    /// Something that begins like a core, with a hole.
    fn plain() -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.extend((0..20_000u32).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()));
        bytes.resize(8 << 20, 0);
        bytes.push(7);
        bytes.resize(bytes.len() + 3 * BLOCK, 0);
        bytes
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Opens a file with these contents.
    fn open(bytes: &[u8], limits: &UnpackLimits) -> Result<CoreFile> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        open_core_file(file.path(), limits, |_, _| true)
    }

    #[test]
    fn formats_unpack_to_sparse_files() {
        let plain = plain();
        let limits = UnpackLimits::default();
        let zstd = zstd::encode_all(&*plain, 3).unwrap();
        let (one, two) = plain.split_at(5000);
        let parts = [gzip(one), gzip(two)].concat();
        let frames = [
            zstd::encode_all(one, 3).unwrap(),
            zstd::encode_all(two, 3).unwrap(),
        ]
        .concat();
        let lz4_frames = [lz4(one), lz4(two)].concat();
        for packed in [&zstd, &frames, &gzip(&plain), &parts, &lz4(&plain), &lz4_frames] {
            let core = open(packed, &limits).unwrap();
            assert!(*core.bytes == *plain && core.note.is_none());
            let blocks = core.unpacked.unwrap().metadata().unwrap().blocks();
            assert!(blocks * 512 < 200_000, "{blocks}");
        }
        let core = open(&plain, &limits).unwrap();
        assert!(*core.bytes == *plain && core.unpacked.is_none());
    }

    #[test]
    fn truncated_file_is_read_up_to_its_end() {
        let plain = plain();
        for packed in [zstd::encode_all(&*plain, 3).unwrap(), gzip(&plain), lz4(&plain)] {
            let core = open(&packed[..packed.len() - 6], &UnpackLimits::default()).unwrap();
            assert!(plain.starts_with(&core.bytes) && core.bytes.len() > 4096);
            assert!(core.note.unwrap().contains("ends early"));
            let error = open(&packed[..8], &UnpackLimits::default()).unwrap_err();
            assert!(error.is_refused(), "{error}");
        }
    }

    #[test]
    fn limits_and_cancellation_end_the_work() {
        let packed = zstd::encode_all(&*plain(), 3).unwrap();
        let limits = UnpackLimits {
            size: 1 << 20,
            ..UnpackLimits::default()
        };
        let error = open(&packed, &limits).unwrap_err();
        assert!(
            error.is_refused() && error.to_string().contains("zstd -dc"),
            "{error}"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &packed).unwrap();
        let mut calls = 0;
        let canceled = open_core_file(file.path(), &UnpackLimits::default(), |done, total| {
            calls += 1;
            assert!(done <= total && total == packed.len() as u64);
            calls < 3
        });
        assert!(matches!(canceled, Err(Error::Canceled)));
    }

    #[test]
    fn other_contents_are_no_core() {
        let packed = zstd::encode_all(&b"some text"[..], 3).unwrap();
        assert!(open(&packed, &UnpackLimits::default()).unwrap_err().is_refused());
        let file = tempfile::NamedTempFile::new().unwrap();
        let is_core = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            is_core_file(file.path())
        };
        // A packed bundle is compressed by zstd, too.
        assert!(!is_core(&packed) && !is_core(b"") && !is_core(b"text"));
        assert!(is_core(&zstd::encode_all(&*plain(), 3).unwrap()) && is_core(b"\x7fELF"));
        assert!(is_core(&gzip(b"x")) && !is_core_file(Path::new("/dev/null")));
    }
}
