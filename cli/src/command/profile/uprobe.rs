//! Finds the instruction that an event `uprobe` counts.

use crate::args::UprobePlace;
use crate::exit::Failure;
use backtrail_profiler::Uprobe;
use backtrail_pt::{FileOffset, Pid};
use backtrail_symbolizer::{DebugSearch, Function, FunctionKind, SymbolFile};
use std::path::{Path, PathBuf};

/// Returns the probe of a function or an offset of a file. A name without a folder is a file that
/// the process has mapped, or else a file of this folder.
pub fn find(place: &UprobePlace, pid: Option<u32>) -> Result<Uprobe, Failure> {
    let file = file(&place.file, pid)?;
    let offset = match place.place.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16)
            .map(FileOffset)
            .map_err(|_| Failure::failed(format_args!("{} is not a hexadecimal number", place.place)))?,
        None => function(&file, &place.place)?,
    };
    let name = place.file.file_name().unwrap_or(place.file.as_os_str());
    let name = format!("uprobe:{}:{}", name.to_string_lossy(), place.place);
    Ok(Uprobe::new(&name, &file, offset)?)
}

fn file(path: &Path, pid: Option<u32>) -> Result<PathBuf, Failure> {
    let has_folder = path.components().count() > 1;
    let mapped = pid
        .filter(|_| !has_folder)
        .and_then(|pid| Uprobe::mapped_file(Pid(pid), path.as_os_str()));
    let file = mapped.unwrap_or_else(|| path.to_owned());
    match file.is_file() {
        true => Ok(std::path::absolute(&file)?),
        false if has_folder => Err(Failure::failed(format_args!(
            "there is no file {}",
            path.display()
        ))),
        false => Err(Failure::failed(format_args!(
            "there is no file {}: give its path, or --pid of a process that has mapped it",
            path.display()
        ))),
    }
}

fn function(file: &Path, name: &str) -> Result<FileOffset, Failure> {
    let symbols = SymbolFile::open(file, &DebugSearch::default())
        .map_err(|error| Failure::failed(format_args!("{}: {error}", file.display())))?;
    let mut found = symbols.functions_named(name);
    found.retain(|function| function.kind == FunctionKind::Function);
    let offset = |function: &Function| symbols.offset_of(function.entry);
    match &found[..] {
        [] => Err(Failure::failed(format_args!(
            "{} has no function {name}; an offset in the file is written 0x1234",
            file.display()
        ))),
        [only] => offset(only)
            .ok_or_else(|| Failure::failed(format_args!("the code of {name} is not in {}", file.display()))),
        several => {
            let offsets: Vec<String> = several
                .iter()
                .filter_map(offset)
                .map(|at| format!("{:#x}", at.0))
                .collect();
            Err(Failure::failed(format_args!(
                "{} has {} functions {name}: give one of these offsets instead: {}",
                file.display(),
                several.len(),
                offsets.join(", ")
            )))
        }
    }
}
