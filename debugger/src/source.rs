//! Source text: where to find it, and lines of it.

mod bundled;

pub use bundled::{BundledSources, md5_of};

use backtrail_bundle::module_file::identity;
use backtrail_bundle::sources::BundledSource;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// No source file is larger than this.
const MAX_SOURCE: u64 = 64 << 20;

/// Lines of a source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLines {
    /// The file, as the debug information names it.
    pub file: String,
    /// The number of the first line.
    pub first: u32,
    /// The text of the lines; `None` if the file was not found.
    pub lines: Option<Vec<String>>,
    /// The line of the current position, if it is one of these.
    pub current: Option<u32>,
    /// The execution count of each line in the recorded history, if requested.
    ///
    /// 0 means that the line has code that did not run, `None` that it has no code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<Vec<Option<u64>>>,
    /// The number of threads whose executions are counted.
    #[serde(skip)]
    pub counted_threads: usize,
    /// Whether the bundle has each line, if it has only some lines of the file. The others are
    /// empty in `lines`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<bool>>,
}

impl SourceLines {
    /// The mark in place of a line that is not in the bundle.
    pub const NOT_KEPT: &str = "(not in the bundle)";

    /// Returns lines of a file as they were found. A line that is not in the bundle is `None`.
    #[must_use]
    pub fn new(file: &str, first: u32, lines: Option<Vec<Option<String>>>, current: Option<u32>) -> Self {
        let all = lines.iter().flatten();
        let has_all = all.clone().all(Option::is_some);
        Self {
            file: file.to_owned(),
            first,
            kept: (!has_all).then(|| all.map(Option::is_some).collect()),
            lines: lines.map(|lines| lines.into_iter().map(Option::unwrap_or_default).collect()),
            current,
            executions: None,
            counted_threads: 0,
        }
    }

    /// Returns whether the text of the line at an index is known.
    #[must_use]
    pub fn is_kept(&self, index: usize) -> bool {
        let kept = self.kept.as_ref();
        kept.is_none_or(|kept| kept.get(index).copied().unwrap_or(true))
    }

    /// Returns the lines, with a mark in place of those that are not in the bundle.
    pub fn marked_lines(&self) -> Option<impl Iterator<Item = &str>> {
        let lines = self.lines.as_ref()?.iter().enumerate();
        Some(lines.map(|(index, line)| match self.is_kept(index) {
            true => line.as_str(),
            false => Self::NOT_KEPT,
        }))
    }
}

/// A source file that was found.
struct FoundSource<'a> {
    path: PathBuf,
    /// The entry of the bundle's list, if the text is the bundle's.
    bundled: Option<&'a BundledSource>,
}

/// The places where source files are searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFinder {
    /// (FROM, TO) of `set substitute-path`: a path that begins with FROM is searched at TO.
    pub substitutions: Vec<(String, String)>,
    /// Directories to look in, also by the end of the path.
    pub directories: Vec<PathBuf>,
    /// If set, source text is read below these folders and the substitutions only.
    ///
    /// The debug information of a bundle may name any file, and the reader of its text may be
    /// another user.
    pub readable: Option<Vec<PathBuf>>,
    /// The source files of the bundle.
    pub bundled: BundledSources,
}

impl SourceFinder {
    /// Returns the file of a path in the debug information.
    ///
    /// The search tries the substitutions, the path itself, and then the directories with shorter
    /// and shorter ends of the path. The bundle's own copy is the last. It comes first if the debug
    /// information says that the file here is another version. The result is absolute, and has no
    /// `.` and `..`.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<PathBuf> {
        let found = self.candidates(path).find(|candidate| is_source(candidate));
        let found = found.map(|found| normal_path(&found));
        self.or_bundled(path, found).map(|found| found.path)
    }

    /// Returns the file on this machine, or the bundle's copy.
    fn or_bundled(&self, path: &str, found: Option<PathBuf>) -> Option<FoundSource<'_>> {
        if let Some(found) = found.as_ref().filter(|found| !self.bundled.replaces(path, found)) {
            return Some(FoundSource {
                path: found.clone(),
                bundled: None,
            });
        }
        let copy = self.bundled.find(path).filter(|(copy, _)| is_source(copy));
        let copy = copy.map(|(path, entry)| FoundSource {
            path,
            bundled: Some(entry),
        });
        copy.or_else(|| found.map(|path| FoundSource { path, bundled: None }))
    }

    /// Returns the entry of the bundle's list for a source file whose text is the bundle's.
    #[must_use]
    pub fn bundled_source(&self, path: &str) -> Option<&BundledSource> {
        self.readable_source(path)?.bundled
    }

    /// The file whose text may be read for a path that the debug information names.
    #[must_use]
    pub fn find_readable(&self, path: &str) -> Option<PathBuf> {
        self.readable_source(path).map(|found| found.path)
    }

    fn readable_source(&self, path: &str) -> Option<FoundSource<'_>> {
        self.or_bundled(path, self.local_readable(path))
    }

    /// Returns the file on this machine whose text may be read.
    fn local_readable(&self, path: &str) -> Option<PathBuf> {
        let Some(readable) = &self.readable else {
            let found = self.candidates(path).find(|candidate| is_source(candidate))?;
            return Some(normal_path(&found));
        };
        let targets = self.substitutions.iter().map(|(_, to)| Path::new(to));
        let folders: Vec<PathBuf> = readable
            .iter()
            .map(PathBuf::as_path)
            .chain(targets)
            .filter_map(|folder| folder.canonicalize().ok())
            .collect();
        // The file itself: a link in a folder may lead out of it.
        self.candidates(path)
            .filter_map(|candidate| candidate.canonicalize().ok())
            .find(|file| folders.iter().any(|folder| file.starts_with(folder)) && is_source(file))
    }

    /// Returns the candidate paths of a file.
    fn candidates(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        // A rule may be about the path as it is recorded, or about the one without `..`.
        let normalized = without_dots(path);
        let spellings = [path, &normalized];
        let substituted = self.substitutions.iter().flat_map(|(from, to)| {
            spellings.into_iter().filter_map(move |path| {
                let rest = path.strip_prefix(from.as_str())?;
                (rest.is_empty() || rest.starts_with('/') || from.ends_with('/')).then(|| {
                    match rest.trim_start_matches('/') {
                        "" => PathBuf::from(to),
                        rest => Path::new(to).join(rest),
                    }
                })
            })
        });
        let itself = std::iter::once(PathBuf::from(path)).filter(|path| path.is_absolute());
        let parts: Vec<&str> = normalized
            .split('/')
            .filter(|part| !matches!(*part, "" | ".."))
            .collect();
        let below = self.directories.iter().flat_map(|directory| {
            (0..parts.len()).map(|skipped| {
                let mut candidate = directory.clone();
                candidate.extend(parts.get(skipped..).unwrap_or(&[]));
                candidate
            })
        });
        // A copy in the bundle whose path has the same end may be that of another file.
        let below = below.filter(|candidate| !self.bundled.has_copy(candidate));
        let candidates: Vec<PathBuf> = substituted.chain(itself).chain(below).collect();
        candidates.into_iter()
    }

    /// Line `line` (from 1) of the file.
    #[must_use]
    pub fn line(&self, path: &str, line: u32) -> Option<String> {
        self.lines(path, line, 1)?.into_iter().next().flatten()
    }

    /// Up to `count` lines from line `first` (from 1) on; `None` when the file is not found. A line
    /// is `None` if the bundle's copy does not have it.
    #[must_use]
    pub fn lines(&self, path: &str, first: u32, count: usize) -> Option<Vec<Option<String>>> {
        let found = self.readable_source(path)?;
        let text = std::fs::read(&found.path).ok()?;
        let text = String::from_utf8_lossy(&text);
        let skipped = first.saturating_sub(1) as usize;
        // Escape sequences in a source file must not control the terminal.
        let clean = |line: &str| line.chars().filter(|c| *c == '\t' || !c.is_control()).collect();
        let has = |line: u32| found.bundled.is_none_or(|entry| entry.has_line(line));
        let lines = (first.max(1)..=u32::MAX)
            .zip(text.lines().skip(skipped))
            .take(count);
        Some(lines.map(|(line, text)| has(line).then(|| clean(text))).collect())
    }

    /// Returns the whole text of a source file for an editor; `None` when the file is not found. A
    /// mark is in the first of adjacent lines that are not in the bundle.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<std::io::Result<String>> {
        let found = self.readable_source(path)?;
        let text = match std::fs::read(&found.path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => return Some(Err(error)),
        };
        let Some(entry) = found.bundled.filter(|entry| entry.lines.is_some()) else {
            return Some(Ok(text));
        };
        let mut marked = String::with_capacity(text.len());
        let mut was_kept = true;
        for (line, text) in (1_u32..).zip(text.split_inclusive('\n')) {
            let is_kept = entry.has_line(line);
            if !is_kept && was_kept {
                marked.push_str(SourceLines::NOT_KEPT);
            }
            was_kept = is_kept;
            marked.push_str(text);
        }
        Some(Ok(marked))
    }
}

/// Returns a path without `.`, and without `..` where it follows a name. Links are not resolved.
#[must_use]
pub fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if path.starts_with('/') && parts.is_empty() => {}
            _ => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Returns the absolute path of an existing file without `.` and `..`, as editors write it.
///
/// Links stay, unless `..` follows one: then the parent is that of the link's target.
fn normal_path(found: &Path) -> PathBuf {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let text = found.to_str();
    let plain = text.and_then(|text| text.strip_prefix('/'));
    if plain.is_some_and(|rest| rest.split('/').all(is_plain)) {
        return found.to_owned();
    }
    let absolute = std::path::absolute(found).unwrap_or_else(|_| found.to_owned());
    let lexical = absolute.to_str().map(|path| PathBuf::from(without_dots(path)));
    match lexical {
        Some(lexical) if is_same_file(&lexical, found) => lexical,
        _ => found.canonicalize().unwrap_or(absolute),
    }
}

/// Returns whether two paths lead to one file.
#[must_use]
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

fn is_source(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_SOURCE)
}

/// The last part of a path, for display.
#[must_use]
pub fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
