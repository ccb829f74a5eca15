//! The allocator functions of a process, in files that only root can change.
//!
//! Root parses no file of another user, so other files are left out.

use crate::probe::ProbedFunction;
use crate::trust;
use backtrail_bundle::heap::AllocatorFunction;
use backtrail_process::maps::Map;
use backtrail_process::{RawTid, maps, symbols};
use backtrail_pt::{FileOffset, Pid};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum number of functions of a process.
const MAX_FUNCTIONS: usize = 64;
/// The maximum number of files of a process that are read.
const MAX_FILES: usize = 1024;

/// A file by its device and inode.
pub(super) type FileKey = ((u32, u32), u64);

/// A symbol that matters.
enum Symbol {
    Function(AllocatorFunction),
    OperatorNew,
}

/// Returns the allocator functions of a process in files that are not in `known`, and adds these
/// files.
///
/// # Errors
/// When its allocator has an `operator new` of its own, so that not all allocations are seen.
pub(super) fn find(pid: Pid, known: &mut HashSet<FileKey>) -> Result<Vec<ProbedFunction>, String> {
    let mut found: Vec<ProbedFunction> = Vec::new();
    for map in maps::maps(pid.0 as RawTid) {
        let key = (map.device, map.inode);
        if !map.executable || !map.is_file() || known.len() >= MAX_FILES || !known.insert(key) {
            continue;
        }
        if is_trusted(&map) {
            found.extend(in_file(pid, &map)?);
        }
    }
    found.truncate(MAX_FUNCTIONS);
    Ok(found)
}

fn in_file(pid: Pid, map: &Map) -> Result<Vec<ProbedFunction>, String> {
    let wanted = |name: &str| match AllocatorFunction::of_symbol(name) {
        Some(AllocatorFunction::New) => Some(Symbol::OperatorNew),
        Some(function) if !name.starts_with('_') => Some(Symbol::Function(function)),
        _ => None,
    };
    let symbols = symbols::functions(pid.0 as RawTid, map, wanted);
    let path = Arc::new(PathBuf::from(&map.path));
    let mut found: Vec<ProbedFunction> = Vec::new();
    let mut has_operator = false;
    for (address, symbol) in symbols {
        let Symbol::Function(function) = symbol else {
            has_operator = true;
            continue;
        };
        let function = ProbedFunction {
            path: Arc::clone(&path),
            offset: FileOffset(address.wrapping_sub(map.start).wrapping_add(map.offset)),
            function,
        };
        // Two names of one function, or two symbol tables.
        if !found.iter().any(|known| known.offset == function.offset) {
            found.push(function);
        }
    }
    let has_malloc = found
        .iter()
        .any(|function| function.function == AllocatorFunction::Malloc);
    match (has_malloc, has_operator) {
        (true, true) => Err(format!(
            "{} has malloc and an operator new of its own, which probes cannot follow",
            map.path
        )),
        (true, false) => Ok(found),
        // The C++ library calls malloc.
        (false, _) => Ok(Vec::new()),
    }
}

/// Returns whether only root can change the mapped file, and it is at this path for the collector.
fn is_trusted(map: &Map) -> bool {
    let path = Path::new(&map.path);
    let Ok(metadata) = path.metadata() else {
        return false;
    };
    let device = (
        nix::sys::stat::major(metadata.dev()) as u32,
        nix::sys::stat::minor(metadata.dev()) as u32,
    );
    (device, metadata.ino()) == (map.device, map.inode) && matches!(trust::first_untrusted(path), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_are_found_once() {
        let pid = Pid(std::process::id());
        let mut known = HashSet::new();
        let found = find(pid, &mut known).unwrap();
        if !nix::unistd::geteuid().is_root() && found.is_empty() {
            eprintln!("left out: the C library is not root's");
            return;
        }
        let count = |wanted| {
            found
                .iter()
                .filter(|function| function.function == wanted)
                .count()
        };
        assert_eq!(
            (count(AllocatorFunction::Malloc), count(AllocatorFunction::Free)),
            (1, 1),
            "{found:?}"
        );
        assert_eq!(find(pid, &mut known).unwrap(), []);
    }
}
