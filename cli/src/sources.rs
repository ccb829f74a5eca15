//! Source files for a bundle: those whose lines the program executed.
//!
//! Of the senders, only this module reads debug information. Programs choose the paths in it. So
//! the real path of a file must be below an allowed directory. The user names these directories, or
//! they are those in which files were compiled.

use crate::args::SourceOptions;
use crate::exit::Failure;
use backtrail_bundle::sources::{
    BundledSource, INDEX, MAX_FILES, encode, place_of, ranges_around, with_lines,
};
use backtrail_bundle::{Bundle, BundlePath};
use backtrail_debugger::source::{SourceFinder, md5_of, without_dots};
use backtrail_debugger::{Navigator, OpenOptions, Session, Watch};
#[cfg(all(feature = "collector", feature = "hub"))]
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

pub use crate::args::SourceExtent;

/// The most frames of the crashed thread whose files are added.
const FRAMES: usize = 128;
/// The end of each trace that is decoded, in bytes: as much as the hub decodes.
const LAST: u64 = 16 << 20;
/// The largest file, and all files together, in bytes.
const MAX_FILE: u64 = 2 << 20;
const MAX_TOTAL: u64 = 32 << 20;
/// The lines before and after an executed line.
const AROUND: u32 = 10;
/// Directories of the system. Files below them are added only if the user names a directory.
const SYSTEM: [&str; 11] = [
    "/usr", "/etc", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/dev", "/boot", "/var",
];

/// The files that may be added.
#[derive(Clone, Copy, Debug)]
pub enum AllowedSources<'a> {
    /// Those below these directories.
    Below(&'a [PathBuf]),
    /// Those below the directory in which they were compiled, unless it is one of the system.
    BuildDirectories,
}

/// The source files of a bundle that are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The files.
    pub allowed: AllowedSources<'a>,
    /// The part of each file.
    pub extent: SourceExtent,
}

impl<'a> Selection<'a> {
    /// Returns the selection of the command line. `None`: no source files are wanted.
    pub fn of(options: &'a SourceOptions) -> Option<Self> {
        Some(Self {
            extent: options.sources?,
            allowed: match options.directories.as_slice() {
                [] => AllowedSources::BuildDirectories,
                directories => AllowedSources::Below(directories),
            },
        })
    }
}

/// Source files for a bundle.
#[derive(Debug, Default)]
pub struct FoundSources {
    /// Copies of the files and their list, by their paths in the bundle.
    pub files: BTreeMap<BundlePath, PathBuf>,
    /// The number of files in the list.
    pub count: usize,
    /// A sentence for each group of files that is left out.
    pub problems: Vec<String>,
}

#[cfg(all(feature = "collector", feature = "hub"))]
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
#[cfg(all(feature = "collector", feature = "hub"))]
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
#[cfg(all(feature = "collector", feature = "hub"))]
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SourceAnswer {
    /// The copies, by their paths in the bundle.
    pub files: BTreeMap<String, PathBuf>,
    /// A sentence for each problem.
    pub problems: Vec<String>,
}

/// Adds source files of this machine to a bundle directory.
///
/// # Errors
/// Fails as [`collect`] does.
pub fn add(bundle: &Path, selection: Selection<'_>) -> Result<FoundSources, Failure> {
    let failed = |error| Failure::failed(format_args!("cannot write to {}: {error}", bundle.display()));
    // Files move into place only within one file system.
    let scratch = tempfile::Builder::new()
        .prefix(".sources-")
        .tempdir_in(bundle)
        .map_err(failed)?;
    let found = collect(bundle, selection, &scratch.path().join("copies"))?;
    // No reader uses a copy that is not in the list, so that the list is the last.
    let (list, copies): (Vec<_>, Vec<_>) = found.files.iter().partition(|(place, _)| place.as_str() == INDEX);
    for (place, copy) in copies.into_iter().chain(list) {
        let target = bundle.join(place.as_str());
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        std::fs::rename(copy, &target).map_err(failed)?;
    }
    Ok(found)
}

/// Copies the selected source files of a bundle to the new directory `target`. Files that the
/// bundle already has, and this machine has not, stay in its list.
///
/// # Errors
/// Fails if the bundle cannot be opened, or a copy cannot be written.
pub fn collect(bundle: &Path, selection: Selection<'_>, target: &Path) -> Result<FoundSources, Failure> {
    let options = OpenOptions {
        last: Some(LAST),
        ..OpenOptions::default()
    };
    let watch = Watch::none();
    let session = Session::open(bundle, &options, &watch)?;
    let mut navigator = Navigator::new(session)?;
    // The files are those of this machine, and not others with the same end of the path.
    navigator.sources = SourceFinder::default();
    let executed = executed_lines(&navigator, &watch)?;
    std::fs::create_dir(target)
        .map_err(|error| Failure::failed(format_args!("cannot create {}: {error}", target.display())))?;
    let mut search = Search {
        navigator,
        selection,
        target,
        total: 0,
        listed: Vec::new(),
        found: FoundSources::default(),
        left_out: LeftOut::default(),
    };
    for (name, lines) in executed {
        search.take(&name, &lines)?;
    }
    search.finish()
}

/// The number of files that are left out, by reason.
#[derive(Default)]
struct LeftOut {
    /// Files that are not those of the build.
    differing: usize,
    /// Files that are too large or too many.
    large: usize,
    /// Files outside of the directories in which they were compiled, and one of them.
    outside: usize,
    example: Option<PathBuf>,
}

/// A search for source files.
struct Search<'a> {
    navigator: Navigator,
    selection: Selection<'a>,
    target: &'a Path,
    /// The size of the found files in bytes.
    total: u64,
    listed: Vec<BundledSource>,
    found: FoundSources,
    left_out: LeftOut,
}

impl Search<'_> {
    /// Copies a file, if it may be added and is that of the build.
    fn take(&mut self, name: &str, lines: &BTreeSet<u32>) -> Result<(), Failure> {
        let Some(file) = self.allowed_file(name) else {
            return Ok(());
        };
        let place = place_of(&without_dots(name)).filter(|place| !self.found.files.contains_key(place));
        let (Some(text), Some(place)) = (read(&file), place) else {
            self.left_out.large += 1;
            return Ok(());
        };
        let md5 = md5_of(&text);
        let stated = stated_md5(&self.navigator, name);
        if stated.as_ref().is_some_and(|stated| *stated != md5) {
            self.left_out.differing += 1;
            return Ok(());
        }
        let (text, lines) = match self.selection.extent {
            SourceExtent::Files => (text, None),
            SourceExtent::Lines => {
                let count = text.split_inclusive(|byte| *byte == b'\n').count();
                let mut ranges = ranges_around(lines, AROUND);
                ranges.retain(|(first, _)| *first as usize <= count);
                if let Some((_, last)) = ranges.last_mut() {
                    *last = (*last).min(u32::try_from(count).unwrap_or(u32::MAX));
                }
                (with_lines(&text, &ranges), Some(ranges))
            }
        };
        if self.listed.len() >= MAX_FILES || self.total + text.len() as u64 > MAX_TOTAL {
            self.left_out.large += 1;
            return Ok(());
        }
        self.total += text.len() as u64;
        let copy = self.target.join(self.listed.len().to_string());
        write(&copy, &text)?;
        self.listed.push(BundledSource {
            path: name.to_owned(),
            file: place.as_str().to_owned(),
            md5,
            verified: stated.is_some(),
            lines,
        });
        let _ = self.found.files.insert(place, copy);
        Ok(())
    }

    /// Returns the file with a name of the debug information, if it exists and may be added.
    fn allowed_file(&mut self, name: &str) -> Option<PathBuf> {
        let file = self.navigator.sources.find(name)?.canonicalize().ok()?;
        let is_below = |directories: &[PathBuf]| {
            let real = directories.iter().filter_map(|folder| folder.canonicalize().ok());
            real.into_iter().any(|folder| file.starts_with(folder))
        };
        match self.selection.allowed {
            AllowedSources::Below(directories) => is_below(directories).then_some(file),
            AllowedSources::BuildDirectories => {
                let directories = compile_directories(&self.navigator, name);
                if directories.iter().any(|folder| is_in_tree(&file, folder)) {
                    return Some(file);
                }
                if !is_of_system(&file) {
                    self.left_out.outside += 1;
                    self.left_out.example.get_or_insert(file);
                }
                None
            }
        }
    }

    /// Writes the list, and reports the files that are left out.
    fn finish(mut self) -> Result<FoundSources, Failure> {
        let LeftOut {
            differing,
            large,
            outside,
            example,
        } = self.left_out;
        let problems = &mut self.found.problems;
        if differing > 0 {
            let sentence = format!("{differing} source files are not those of the build, and are left out");
            problems.push(sentence);
        }
        if large > 0 {
            let sentence = format!("{large} source files are too large or too many, and are left out");
            problems.push(sentence);
        }
        if let Some(example) = example {
            problems.push(format!(
                "{outside} source files are outside of the directory in which they were compiled, and are left out; use --source-dir DIR: {}",
                example.display()
            ));
        }
        let bundle = self.navigator.session().bundle();
        for source in bundle.map_or_else(|| Ok(Vec::new()), Bundle::sources)? {
            let is_new = |known: &BundledSource| known.file != source.file && known.path != source.path;
            if self.listed.iter().all(is_new) && self.listed.len() < MAX_FILES {
                self.listed.push(source);
            }
        }
        self.found.count = self.listed.len();
        if !self.found.files.is_empty() {
            let index = self.target.join(INDEX);
            write(&index, &encode(&self.listed)?)?;
            let _ = self.found.files.insert(BundlePath::new(INDEX)?, index);
        }
        Ok(self.found)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", path.display())))
}

/// Returns the executed lines of each file, and those of the crashed thread's frames.
fn executed_lines(
    navigator: &Navigator,
    watch: &Watch<'_>,
) -> Result<BTreeMap<Arc<str>, BTreeSet<u32>>, Failure> {
    let session = navigator.session();
    let mut executed: BTreeMap<Arc<str>, BTreeSet<u32>> = BTreeMap::new();
    for thread in session.threads() {
        if !thread.history.is_empty() {
            let coverage = session.coverage(thread, watch)?;
            for (name, lines) in coverage.files() {
                let known = executed.entry(Arc::clone(name)).or_default();
                known.extend(lines.keys());
            }
        }
    }
    let stack = navigator.known_stack(FRAMES, watch)?;
    for frame in stack.frames {
        if let Some(file) = frame.file {
            let known = executed.entry(Arc::from(file.as_str())).or_default();
            known.extend(frame.line);
        }
    }
    Ok(executed)
}

/// Returns the real directories in which a file was compiled, without those of the system.
fn compile_directories(navigator: &Navigator, name: &str) -> Vec<PathBuf> {
    let processes = navigator.session().processes().iter();
    let epochs = processes.flat_map(|process| process.epochs());
    let modules = epochs.flat_map(|epoch| epoch.symbols.modules());
    let files = modules.filter_map(|module| module.file.as_ref());
    let named: BTreeSet<String> = files.flat_map(|file| file.compile_directories(name)).collect();
    let absolute = named.iter().map(Path::new).filter(|path| path.is_absolute());
    let real = absolute.filter_map(|path| path.canonicalize().ok());
    real.filter(|path| path.parent().is_some() && !is_of_system(path))
        .collect()
}

/// Returns whether a file is below a directory, and not below a hidden one in it. Hidden files of a
/// home directory are no sources, although a program may name them.
fn is_in_tree(file: &Path, folder: &Path) -> bool {
    let names = file.strip_prefix(folder).ok().map(Path::components);
    let is_hidden = |name: Component<'_>| name.as_os_str().as_encoded_bytes().starts_with(b".");
    names.is_some_and(|mut names| !names.any(is_hidden))
}

/// Returns whether a real path is one of the system.
fn is_of_system(path: &Path) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// Returns the MD5 of a file in the debug information.
fn stated_md5(navigator: &Navigator, name: &str) -> Option<String> {
    let processes = navigator.session().processes().iter();
    let epochs = processes.flat_map(|process| process.epochs());
    let mut modules = epochs.flat_map(|epoch| epoch.symbols.modules());
    let digest = modules.find_map(|module| module.file.as_ref()?.source_md5(name))?;
    let mut text = String::new();
    for byte in digest {
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

/// Returns the contents of a regular file of a bounded size.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let _ = file.take(MAX_FILE + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_FILE).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_are_not_in_a_tree() {
        for (path, is_in) in [
            ("/home/me/a.c", true),
            ("/home/me/src/a.c", true),
            ("/home/me/.ssh/id", false),
            ("/home/me/.netrc", false),
            ("/home/you/a.c", false),
        ] {
            assert_eq!(
                is_in_tree(Path::new(path), Path::new("/home/me")),
                is_in,
                "{path}"
            );
        }
    }

    #[test]
    fn system_files_are_those_below_system_directories() {
        for (path, is_system) in [
            ("/usr/include/stdio.h", true),
            ("/var/lib/a.c", true),
            ("/home/me/usr/a.c", false),
            ("/usrlocal/a.c", false),
        ] {
            assert_eq!(is_of_system(Path::new(path)), is_system, "{path}");
        }
    }
}
