//! The format of a packed bundle (`.btz`): a tar archive compressed with zstd.

use crate::sparse::write_sparse;
use crate::{BundlePath, CancelToken, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The most bytes that a packed bundle may unpack to.
const MAX_UNPACKED: u64 = 64 << 30;
/// The size that any packed bundle may unpack to. Larger ones are bounded by [`MAX_RATIO`].
const FREE_SIZE: u64 = 4 << 30;
/// The largest accepted compression ratio. PT compresses to about a tenth; a core of mostly zeros
/// compresses much better.
const MAX_RATIO: u64 = 1000;
/// The most files that a packed bundle may hold.
const MAX_ENTRIES: usize = 1 << 16;
/// The zstd compression level: the default, about 1 s for 200 MB.
const LEVEL: i32 = 3;

/// Writes the files below `root` to `out` as a packed bundle, except the files `without`. The files
/// `replaced` are added in place of those with the same path.
///
/// # Errors
/// Fails if a file cannot be read or written, or if readers would refuse to unpack that much.
pub(crate) fn write(
    root: &Path,
    without: &BTreeSet<BundlePath>,
    replaced: &BTreeMap<BundlePath, PathBuf>,
    out: &File,
    target: &Path,
    cancel: &CancelToken,
) -> Result<()> {
    let is_packed = |path: &str| {
        !BundlePath::new(path).is_ok_and(|path| without.contains(&path) || replaced.contains_key(&path))
    };
    let write = || -> io::Result<u64> {
        let mut encoder = zstd::Encoder::new(BufWriter::new(out), LEVEL)?;
        // Readers detect a flipped bit by the checksum.
        encoder.include_checksum(true)?;
        let mut archive = tar::Builder::new(encoder);
        let mut total = append_dir(&mut archive, root, "", &is_packed, cancel)?;
        for (path, source) in replaced {
            total += append_file(&mut archive, path.as_str(), source, cancel)?;
        }
        archive.into_inner()?.finish()?.flush()?;
        Ok(total)
    };
    let total = cancel.or_canceled(write().map_err(Error::io("write", target)))?;
    let size = out.metadata().map_err(Error::io("read", target))?.len();
    let limit = unpacked_limit(size);
    if total > limit {
        let problem = format!(
            "the bundle has {total} bytes, but readers unpack at most {limit}; keep it as a directory"
        );
        return Err(Error::Usage(problem));
    }
    Ok(())
}

/// Adds those files of `dir` that `is_packed`, in order of name, and returns their size in bytes.
/// Symbolic links are neither followed nor packed.
fn append_dir<W: Write>(
    archive: &mut tar::Builder<W>,
    dir: &Path,
    prefix: &str,
    is_packed: &dyn Fn(&str) -> bool,
    cancel: &CancelToken,
) -> io::Result<u64> {
    let mut entries = std::fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut total = 0;
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            total += append_dir(archive, &entry.path(), &format!("{path}/"), is_packed, cancel)?;
        } else if kind.is_file() && is_packed(&path) {
            total += append_file(archive, &path, &entry.path(), cancel)?;
        }
    }
    Ok(total)
}

/// Adds a file, and returns its size in bytes.
fn append_file<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    source: &Path,
    cancel: &CancelToken,
) -> io::Result<u64> {
    let file = File::open(source)?;
    let size = file.metadata()?.len();
    archive.append(&header(path, size)?, &mut cancel.reader(file))?;
    Ok(size)
}

/// Builds the tar header of a file. It holds no times, owners or modes of the packing machine. It
/// uses no extension for long names, because the unpacker refuses them: their length is unbounded.
fn header(path: &str, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

/// Returns how many bytes a packed bundle of `size` bytes may unpack to.
fn unpacked_limit(size: u64) -> u64 {
    size.saturating_mul(MAX_RATIO).clamp(FREE_SIZE, MAX_UNPACKED)
}

/// Unpacks the packed bundle at `packed` into `dir`, until `cancel` is set.
pub(crate) fn unpack_into(packed: &Path, dir: &Path, cancel: &CancelToken) -> Result<()> {
    // Opening a named pipe would wait for a writer.
    let metadata = packed.metadata().map_err(Error::io("open", packed))?;
    if !metadata.is_file() {
        let problem = match metadata.is_dir() {
            true => "this is a directory, not a packed bundle",
            false => "a bundle is a directory or a regular file",
        };
        return Err(Error::malformed(packed.display(), problem));
    }
    let file = File::open(packed).map_err(Error::io("open", packed))?;
    let packed = PackedFile {
        file: &file,
        place: packed.display().to_string(),
    };
    cancel.or_canceled(unpack_entries(&packed, dir, MAX_UNPACKED, cancel))
}

/// An open packed bundle.
pub(crate) struct PackedFile<'a> {
    pub(crate) file: &'a File,
    /// The file's name in error messages.
    pub(crate) place: String,
}

/// Unpacks regular files with plain relative paths, at most `max_size` bytes. Any other entry is
/// refused.
pub(crate) fn unpack_entries(
    packed: &PackedFile<'_>,
    dir: &Path,
    max_size: u64,
    cancel: &CancelToken,
) -> Result<()> {
    let (file, place) = (packed.file, &packed.place);
    let size = file.metadata().map_err(Error::io("read", place.as_ref()))?.len();
    let limit = unpacked_limit(size).min(max_size);
    let damaged =
        |error: io::Error| Error::malformed(place, format!("this is not a packed bundle ({error})"));
    let decoder = zstd::Decoder::new(BufReader::new(file)).map_err(damaged)?;
    // Reading one byte beyond the limit shows that the archive is too large.
    let mut archive = tar::Archive::new(cancel.reader(decoder.take(limit + 1)));
    let mut total = 0u64;
    for (index, entry) in archive.entries().map_err(damaged)?.raw(true).enumerate() {
        let mut entry = entry.map_err(damaged)?;
        if index >= MAX_ENTRIES {
            return Err(Error::malformed(
                place,
                format!("it holds more than {MAX_ENTRIES} files"),
            ));
        }
        total = total.saturating_add(entry.size());
        if total > limit {
            return Err(Error::malformed(
                place,
                format!("it unpacks to more than {limit} bytes"),
            ));
        }
        let path = entry.path_bytes().into_owned();
        let path =
            std::str::from_utf8(&path).map_err(|_| Error::malformed(place, "a name in it is not UTF-8"))?;
        match entry.header().entry_type() {
            tar::EntryType::Directory => continue,
            tar::EntryType::Regular => {}
            _ => {
                return Err(Error::malformed(
                    place,
                    format!("{path:?} is neither a plain file nor a directory"),
                ));
            }
        }
        let target = dir.join(BundlePath::new(path)?.as_str());
        let mut out = create(&target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                let problem = format!("{path:?} occurs twice, or as a file and a directory");
                Error::malformed(place, problem)
            }
            _ => Error::io("create", &target)(error),
        })?;
        let (size, mut copied, mut buffer) = (entry.size(), 0, vec![0; 1 << 16]);
        loop {
            let read = fill(&mut entry, &mut buffer).map_err(damaged)?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            write_sparse(&mut out, bytes).map_err(Error::io("write", &target))?;
            copied += read as u64;
        }
        out.set_len(copied).map_err(Error::io("write", &target))?;
        if copied != size {
            return Err(Error::malformed(place, format!("{path:?} is truncated")));
        }
    }
    // The checksum follows the last entry.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged)?;
    Ok(())
}

/// Reads until the buffer is full or the end is reached. Returns the number of bytes.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Creates a file and its parent directories.
fn create(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    File::create_new(path)
}
