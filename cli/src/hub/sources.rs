//! Source files for a bundle: those whose lines the crashed program executed.
//!
//! Only this module of the senders reads debug information. Programs choose the paths in it. So a
//! file is read only if its real path is below a directory that the user named.

use crate::exit::Failure;
use backtrail_bundle::BundlePath;
use backtrail_bundle::sources::{BundledSource, INDEX, MAX_FILES, encode, place_of};
use backtrail_debugger::source::{SourceFinder, without_dots};
use backtrail_debugger::{Navigator, OpenOptions, Session, Watch};
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most frames of the crashed thread whose files are sent.
const FRAMES: usize = 128;
/// The end of each trace that is decoded, in bytes: as much as the hub decodes.
const LAST: u64 = 16 << 20;
/// The largest file, and all files together, in bytes.
const MAX_FILE: u64 = 2 << 20;
const MAX_TOTAL: u64 = 32 << 20;

/// Source files for a bundle.
#[derive(Debug, Default)]
pub struct FoundSources {
    /// Copies of the files and their list, by their paths in the bundle.
    pub files: BTreeMap<BundlePath, PathBuf>,
    /// A sentence for each group of files that is left out.
    pub problems: Vec<String>,
}

impl FoundSources {
    /// Returns the paths in the bundle, and the copies.
    pub fn files_as_text(&self) -> BTreeMap<String, PathBuf> {
        let files = self.files.iter();
        files
            .map(|(path, file)| (path.as_str().to_owned(), file.clone()))
            .collect()
    }
}

/// A request to the process that reads source files for the collector's sender.
#[derive(Debug, Serialize, Deserialize)]
pub struct SourceRequest {
    /// The directory of the bundle.
    pub bundle: PathBuf,
    /// The directories whose files may be sent.
    pub allowed: Vec<PathBuf>,
    /// The new directory for the copies.
    pub target: PathBuf,
}

/// The answer to a request.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SourceAnswer {
    /// The copies, by their paths in the bundle.
    pub files: BTreeMap<String, PathBuf>,
    /// A sentence for each problem.
    pub problems: Vec<String>,
}

/// Copies the source files of a bundle to the new directory `target`, if they are below the
/// `allowed` directories.
///
/// # Errors
/// Fails if the bundle cannot be opened, or a copy cannot be written.
pub fn collect(bundle: &Path, allowed: &[PathBuf], target: &Path) -> Result<FoundSources, Failure> {
    let options = OpenOptions {
        last: Some(LAST),
        ..OpenOptions::default()
    };
    let watch = Watch::none();
    let session = Session::open(bundle, &options, &watch)?;
    let mut navigator = Navigator::new(session)?;
    // The files are those of this machine, and not others with the same end of the path.
    navigator.sources = SourceFinder {
        readable: Some(allowed.to_vec()),
        ..SourceFinder::default()
    };
    let names = executed_files(&navigator, &watch)?;
    let write = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes)
            .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", path.display())))
    };
    std::fs::create_dir(target)
        .map_err(|error| Failure::failed(format_args!("cannot create {}: {error}", target.display())))?;
    let mut found = FoundSources::default();
    let (mut listed, mut total, mut differing, mut left_out) = (Vec::new(), 0, 0, 0);
    for name in names {
        let Some(file) = navigator.sources.find_readable(&name) else {
            continue;
        };
        let text = read(&file, MAX_FILE.min(MAX_TOTAL - total));
        let place = place_of(&without_dots(&name)).filter(|place| !found.files.contains_key(place));
        let (Some(text), Some(place)) = (text, place) else {
            left_out += 1;
            continue;
        };
        let digest: [u8; 16] = Md5::digest(&text).into();
        let stated = stated_md5(&navigator, &name);
        if stated.is_some_and(|stated| stated != digest) {
            differing += 1;
            continue;
        }
        if listed.len() >= MAX_FILES {
            left_out += 1;
            continue;
        }
        total += text.len() as u64;
        let copy = target.join(listed.len().to_string());
        write(&copy, &text)?;
        listed.push(BundledSource {
            path: name.to_string(),
            file: place.as_str().to_owned(),
            md5: hexadecimal(&digest),
            verified: stated.is_some(),
        });
        let _ = found.files.insert(place, copy);
    }
    if differing > 0 {
        let sentence = format!("{differing} source files are not those of the build, and are left out");
        found.problems.push(sentence);
    }
    if left_out > 0 {
        let sentence = format!("{left_out} source files are too large or too many, and are left out");
        found.problems.push(sentence);
    }
    if !listed.is_empty() {
        let index = target.join(INDEX);
        write(&index, &encode(&listed)?)?;
        let _ = found.files.insert(BundlePath::new(INDEX)?, index);
    }
    Ok(found)
}

/// Returns the files of the executed lines and of the crashed thread's frames.
fn executed_files(navigator: &Navigator, watch: &Watch<'_>) -> Result<BTreeSet<Arc<str>>, Failure> {
    let session = navigator.session();
    let mut names = BTreeSet::new();
    for thread in session.threads() {
        if !thread.history.is_empty() {
            let coverage = session.coverage(thread, watch)?;
            names.extend(coverage.files().map(|(name, _)| Arc::clone(name)));
        }
    }
    let stack = navigator.known_stack(FRAMES, watch)?;
    let files = stack.frames.into_iter().filter_map(|frame| frame.file);
    names.extend(files.map(|file| Arc::from(file.as_str())));
    Ok(names)
}

/// Returns the MD5 of a file in the debug information.
fn stated_md5(navigator: &Navigator, name: &str) -> Option<[u8; 16]> {
    let processes = navigator.session().processes().iter();
    let epochs = processes.flat_map(|process| process.epochs());
    let mut modules = epochs.flat_map(|epoch| epoch.symbols.modules());
    modules.find_map(|module| module.file.as_ref()?.source_md5(name))
}

/// Returns the contents of a regular file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let _ = file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
