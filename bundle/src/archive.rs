//! A bundle in one file: a tar archive compressed with zstd, `.btz`.

use crate::manifest::Meta;
use crate::reader::Bundle;
use crate::{BundlePath, Error, Overwrite, Result, Stop, Writer, durable};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

/// No packed bundle unpacks to more.
const MAX_UNPACKED: u64 = 64 << 30;
/// A packed bundle unpacks to no more than this, or [`MAX_RATIO`] times its size if that is more.
const FREE_SIZE: u64 = 4 << 30;
/// PT compresses to a tenth or so; a core that is mostly zeros, much better.
const MAX_RATIO: u64 = 1000;
/// No bundle has more files.
const MAX_ENTRIES: usize = 1 << 16;
/// How hard to compress: zstd's default, about 1 s for 200 MB.
const LEVEL: i32 = 3;

/// Packs the bundle in the directory `bundle` into the file `target`, which must not exist.
///
/// # Errors
/// When `bundle` is not one, or the file cannot be written; when `stop` came.
pub fn pack(bundle: &Path, target: &Path, stop: &Stop) -> Result<()> {
    let opened = Bundle::open(bundle)?;
    if target.symlink_metadata().is_ok() {
        return Err(Error::TargetExists {
            path: target.to_owned(),
            what: if target.is_dir() { "a directory" } else { "a file" },
            hint: "",
        });
    }
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(parent).map_err(Error::io("create a file in", parent))?;
    let write = || -> io::Result<u64> {
        let mut encoder = zstd::Encoder::new(BufWriter::new(file.as_file()), LEVEL)?;
        // A flipped bit is found, and not decoded.
        encoder.include_checksum(true)?;
        let mut archive = tar::Builder::new(encoder);
        let total = append_dir(&mut archive, opened.root(), "", stop)?;
        archive.into_inner()?.finish()?.flush()?;
        Ok(total)
    };
    let total = stop.told(write().map_err(Error::io("write", target)))?;
    let limit = unpacked_limit(
        file.as_file()
            .metadata()
            .map_err(Error::io("read", target))?
            .len(),
    );
    if total > limit {
        let problem = format!(
            "the bundle has {total} bytes, of which a reader would unpack {limit} only; keep it a directory"
        );
        return Err(Error::Usage(problem));
    }
    file.persist_noclobber(target)
        .map_err(|error| Error::io("create", target)(error.error))?;
    Ok(())
}

/// Adds what stands in `dir`, in order of name, and says how many bytes that was; links are not
/// followed and not packed.
fn append_dir<W: Write>(
    archive: &mut tar::Builder<W>,
    dir: &Path,
    prefix: &str,
    stop: &Stop,
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
            total += append_dir(archive, &entry.path(), &format!("{path}/"), stop)?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            let size = file.metadata()?.len();
            archive.append(&header(&path, size)?, &mut stop.reader(file))?;
            total += size;
        }
    }
    Ok(total)
}

/// The header of a file. It holds nothing of the packing machine's times, owners and modes, and needs
/// no extension for long names, for those are refused when unpacking: their length is unbounded.
fn header(path: &str, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

/// Unpacks the packed bundle `packed` to the new directory `target`.
///
/// # Errors
/// Malformed, when it is no packed bundle; or the target exists; or `stop` came.
pub fn unpack(packed: &Path, target: &Path, stop: &Stop) -> Result<()> {
    let writer = Writer::create(target, Overwrite::Never)?;
    unpack_within(packed, writer.root(), MAX_UNPACKED, stop)?;
    Bundle::open(writer.root())?;
    writer.publish()
}

/// Unpacks a packed bundle that comes from somebody else, an open file, to the new directory `target`, so that it survives a
/// loss of power. Its description is the one that `revise` makes of what came out.
///
/// # Errors
/// As [`unpack`]; it unpacks to more than `limit` bytes; or what `revise` says. Nothing stands at the target then.
pub fn unpack_revised(
    packed: &File,
    target: &Path,
    limit: u64,
    revise: impl FnOnce(&Bundle) -> Result<Meta>,
) -> Result<()> {
    let writer = Writer::create(target, Overwrite::Never)?;
    let packed = Packed {
        file: packed,
        place: "the bundle".to_owned(),
    };
    unpack_entries(&packed, writer.root(), limit, &Stop::default())?;
    let meta = revise(&Bundle::open(writer.root())?)?;
    writer.replace_meta(&meta)?;
    Bundle::open(writer.root())?;
    durable::sync_tree(writer.root())?;
    writer.publish()?;
    durable::sync_directory(target.parent().unwrap_or(Path::new(".")))
}

/// How many bytes may come out of a packed bundle of `size` bytes.
fn unpacked_limit(size: u64) -> u64 {
    size.saturating_mul(MAX_RATIO).clamp(FREE_SIZE, MAX_UNPACKED)
}

/// Unpacks regular files of plain relative paths; anything else in the archive is refused.
pub(crate) fn unpack_into(packed: &Path, dir: &Path) -> Result<()> {
    unpack_within(packed, dir, MAX_UNPACKED, &Stop::default())
}

/// The same, of no more than `most` bytes, until `stop` comes.
fn unpack_within(packed: &Path, dir: &Path, most: u64, stop: &Stop) -> Result<()> {
    // To open a pipe would wait for a writer.
    let metadata = packed.metadata().map_err(Error::io("open", packed))?;
    if !metadata.is_file() {
        let problem = match metadata.is_dir() {
            true => "this is a directory, and no packed bundle",
            false => "a bundle is a directory or a regular file",
        };
        return Err(Error::malformed(packed.display(), problem));
    }
    let file = File::open(packed).map_err(Error::io("open", packed))?;
    let packed = Packed {
        file: &file,
        place: packed.display().to_string(),
    };
    stop.told(unpack_entries(&packed, dir, most, stop))
}

/// A packed bundle, open.
struct Packed<'a> {
    file: &'a File,
    /// Its name in errors.
    place: String,
}

fn unpack_entries(packed: &Packed<'_>, dir: &Path, most: u64, stop: &Stop) -> Result<()> {
    let (file, place) = (packed.file, &packed.place);
    let size = file.metadata().map_err(Error::io("read", place.as_ref()))?.len();
    let limit = unpacked_limit(size).min(most);
    let damaged =
        |error: io::Error| Error::malformed(place, format!("this is not a packed bundle ({error})"));
    let decoder = zstd::Decoder::new(BufReader::new(file)).map_err(damaged)?;
    // One byte more than allowed shows that there is more.
    let mut archive = tar::Archive::new(stop.reader(decoder.take(limit + 1)));
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
                let problem = format!("{path:?} is there twice, or as a file and a directory");
                Error::malformed(place, problem)
            }
            _ => Error::io("create", &target)(error),
        })?;
        let (size, mut copied, mut piece) = (entry.size(), 0, vec![0; 1 << 16]);
        loop {
            let read = entry.read(&mut piece).map_err(damaged)?;
            let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            out.write_all(bytes).map_err(Error::io("write", &target))?;
            copied += read as u64;
        }
        if copied != size {
            return Err(Error::malformed(place, format!("{path:?} is cut short")));
        }
    }
    // The checksum stands behind the last entry.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged)?;
    Ok(())
}

/// Creates a file, and the directories that it is in.
fn create(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    File::create_new(path)
}
