//! Makes the index of a build, in the child process.

use backtrail_symbol_index::{BuildOptions, Index, OpenOptions, build};
use backtrail_symbolizer::{DebugSearch, SymbolFile, map_file};
use std::path::Path;
use std::sync::Arc;

/// Makes and checks the index of an executable or debug file. A separate debug file is searched in
/// `debug_dir` by its build id.
///
/// # Errors
/// Fails with one sentence if the file has no symbols, or if the index cannot be written.
pub fn make(file: &Path, debug_dir: Option<&Path>, gsym: &Path, types: &Path) -> Result<(), String> {
    let search = DebugSearch {
        roots: debug_dir.map(Path::to_owned).into_iter().collect(),
        ..DebugSearch::none()
    };
    let bytes = map_file(file, search.max_file_size).map_err(|error| error.to_string())?;
    let symbols = SymbolFile::from_bytes(bytes, &search).map_err(|error| error.to_string())?;
    let files = build(&symbols, &BuildOptions::default()).map_err(|error| error.to_string())?;
    let write = |path: &Path, content: &[u8]| {
        std::fs::write(path, content).map_err(|error| format!("cannot write the index: {error}"))
    };
    write(gsym, &files.gsym)?;
    write(types, &files.types)?;
    let options = OpenOptions { cache_bytes: 0 };
    Index::open(Arc::new(files.gsym), Arc::new(files.types), &options)
        .and_then(|index| index.verify())
        .map_err(|error| error.to_string())
}
