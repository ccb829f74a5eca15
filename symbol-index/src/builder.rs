//! Makes the two files of an index from the symbols of a file.

use crate::error::Error;
use crate::records::{GroupRecords, group_records};
use crate::sidecar::{FunctionTypes, SidecarHeader, write_sidecar};
use backtrail_symbolizer::{CodeGroup, SymbolFile};
use gsym::{FileEntry, FileIndex, GsymBuilder};
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest build id in a GSYM of version 1. Longer ones are in the sidecar only.
const MAX_GSYM_BUILD_ID: usize = 20;

/// The options of making an index.
#[derive(Clone, Copy, Debug)]
pub struct BuildOptions {
    /// The number of threads. The bytes of the index do not depend on it.
    pub threads: NonZeroUsize,
}

impl Default for BuildOptions {
    /// Uses all processors of this process.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// The contents of the two files of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexFiles {
    /// The GSYM (version 1): functions, lines and inlined calls.
    pub gsym: Vec<u8>,
    /// The sidecar: types, segments, and checksums of both files.
    pub types: Vec<u8>,
}

/// Makes the index of a file.
///
/// # Errors
/// Fails if no function has a name, or if the debug information is not genuine. Fails if the
/// symbols are larger than the formats allow.
pub fn build(symbols: &SymbolFile, options: &BuildOptions) -> Result<IndexFiles, Error> {
    let groups = symbols.code_groups();
    let records = read_groups(symbols, &groups, options.threads);
    // The unread part could depend on the order of the threads.
    if symbols.exceeds_limits() {
        return Err(Error::ExceedsLimits);
    }
    let id = symbols.build_id();
    let id = id.as_ref().map(|id| id.as_bytes()).unwrap_or_default();
    let mut builder = GsymBuilder::new();
    if id.len() <= MAX_GSYM_BUILD_ID {
        builder = builder.build_id(id);
    }
    let mut types = Vec::new();
    for group in records {
        add_group(&mut builder, group, &mut types)?;
    }
    if builder.functions().is_empty() {
        return Err(Error::NoFunctions);
    }
    let gsym = builder.to_bytes().map_err(Error::Unrepresentable)?;
    types.sort_by_key(|function| function.start);
    let header = SidecarHeader {
        build_id: id.to_vec(),
        detail: symbols.detail(),
        segments: symbols.loaded_segments(),
    };
    let types = write_sidecar(&header, &gsym, &types)?;
    Ok(IndexFiles { gsym, types })
}

/// Reads all groups. Each thread takes the next group that no thread has taken.
fn read_groups(symbols: &SymbolFile, groups: &[CodeGroup], threads: NonZeroUsize) -> Vec<GroupRecords> {
    let next = AtomicUsize::new(0);
    let slots: Vec<OnceLock<GroupRecords>> = groups.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some((group, slot)) = take(&next, groups, &slots) {
            let _ = slot.set(group_records(symbols.code_parts(group)));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(groups.len()) {
            scope.spawn(work);
        }
        work();
    });
    slots.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn take<'a, G, S>(next: &AtomicUsize, groups: &'a [G], slots: &'a [S]) -> Option<(&'a G, &'a S)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((groups.get(number)?, slots.get(number)?))
}

/// Adds the functions of a group, with the numbers that its files have in the GSYM.
fn add_group(
    builder: &mut GsymBuilder,
    group: GroupRecords,
    types: &mut Vec<FunctionTypes>,
) -> Result<(), Error> {
    let mut numbers = vec![FileIndex::ZERO];
    for file in &group.files {
        let entry = match file.rsplit_once('/') {
            Some(("", name)) => FileEntry::new("/", name),
            Some((directory, name)) => FileEntry::new(directory, name),
            None => FileEntry::new("", &**file),
        };
        numbers.push(builder.add_file(entry).map_err(Error::Unrepresentable)?);
    }
    let number = |file: FileIndex| {
        let found = numbers.get(file.get() as usize);
        found.copied().unwrap_or_default()
    };
    for mut function in group.functions {
        for line in &mut function.lines {
            line.file = number(line.file);
        }
        if let Some(inline) = &mut function.inline {
            renumber(inline, &number);
        }
        builder.add_function(function).map_err(Error::Unrepresentable)?;
    }
    types.extend(group.types);
    Ok(())
}

/// Renumbers the files of an inline tree. Its depth is bounded.
fn renumber(node: &mut gsym::InlineNode, number: &impl Fn(FileIndex) -> FileIndex) {
    node.call_file = number(node.call_file);
    for child in &mut node.children {
        renumber(child, number);
    }
}
