//! A spool: a directory of complete recordings, which another program takes and removes.
//!
//! | name | file |
//! |---|---|
//! | `START.prof` | a complete recording; `START` is its first time in nanoseconds since 1970 |
//! | `START.part` | the recording that is written, or that a killed recorder left |

use crate::options::SpoolOptions;
use crate::{Error, Result};
use backtrail_profile::UnixNanos;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The extension of a complete recording.
const COMPLETE: &str = "prof";
/// The extension of a recording that is written.
const PART: &str = "part";
/// The digits of a name, so that names sort by time.
const DIGITS: usize = 20;

/// A complete recording of a spool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpooledFile {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
}

/// A spool that a recording is written to.
#[derive(Debug)]
pub struct Spool {
    options: SpoolOptions,
    start: UnixNanos,
    removed: u64,
}

impl Spool {
    /// Opens a directory, which is created if it does not exist. A recording that a killed recorder
    /// left becomes complete: its last blocks are those of the last second.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if the directory cannot be used.
    pub fn open(options: &SpoolOptions) -> Result<Self> {
        let failed = output_error(&options.directory);
        // Stacks and names of programs are for the owner only.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&options.directory)
            .map_err(&failed)?;
        for path in paths(&options.directory, PART).map_err(&failed)? {
            fs::rename(&path, path.with_extension(COMPLETE)).map_err(&failed)?;
        }
        Ok(Self {
            options: options.clone(),
            start: UnixNanos(0),
            removed: 0,
        })
    }

    /// Returns the path of the next recording, which starts at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if the directory cannot be read.
    pub fn begin(&mut self, start: UnixNanos) -> Result<PathBuf> {
        self.start = start;
        let mut time = start.0;
        loop {
            let name = |extension| {
                self.options
                    .directory
                    .join(format!("{time:0DIGITS$}.{extension}"))
            };
            // The clock may have been set back.
            if !name(COMPLETE).exists() {
                return Ok(name(PART));
            }
            time += 1;
        }
    }

    /// Returns whether the recording covers its interval.
    #[must_use]
    pub fn is_due(&self, now: UnixNanos) -> bool {
        u128::from(now.0.saturating_sub(self.start.0)) >= self.options.interval.as_nanos()
    }

    /// Completes a recording, and removes the oldest ones beyond the limit.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if a file cannot be renamed or removed.
    pub fn complete(&mut self, path: &Path) -> Result<()> {
        fs::rename(path, path.with_extension(COMPLETE)).map_err(output_error(path))?;
        let files = complete_files(&self.options.directory)?;
        let mut size: u64 = files.iter().map(|file| file.size).sum();
        let newest = files.len().saturating_sub(1);
        for file in files.iter().take(newest) {
            if size <= self.options.max_bytes {
                break;
            }
            match fs::remove_file(&file.path) {
                Ok(()) => self.removed += 1,
                // The file was sent in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(output_error(&file.path)(error)),
            }
            size -= file.size;
        }
        Ok(())
    }

    /// Returns the number of recordings that were removed to stay below the limit.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed
    }
}

/// Returns the complete recordings of a directory, the oldest first.
///
/// # Errors
///
/// [`Error::Output`] if the directory cannot be read.
pub fn complete_files(directory: &Path) -> Result<Vec<SpooledFile>> {
    let paths = paths(directory, COMPLETE).map_err(output_error(directory))?;
    // A file may be removed in the meantime.
    let files = paths.into_iter().filter_map(|path| {
        let size = fs::metadata(&path).ok()?.len();
        Some(SpooledFile { path, size })
    });
    Ok(files.collect())
}

fn paths(directory: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_named =
            stem.is_some_and(|stem| stem.len() == DIGITS && stem.bytes().all(|byte| byte.is_ascii_digit()));
        if is_named && path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn output_error(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::Output {
        path: path.clone(),
        error,
    }
}
