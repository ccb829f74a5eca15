//! Names and lines of a profile's code, from the files on this machine.

use backtrail_profile::{Frame, FrameId, Function, Line, ModuleId, Profile, Result, file_hash_id};
use backtrail_profiler::KernelFunctions;
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Adds lines to the frames that have none. A file whose build id is not that of the profile is not
/// used. Returns a sentence for each module that has frames but no symbols.
pub fn symbolize(profile: &mut Profile, search: &DebugSearch) -> Result<Vec<String>> {
    let mut frames: BTreeMap<ModuleId, Vec<FrameId>> = BTreeMap::new();
    for (id, frame) in profile.frames.iter() {
        if let Frame::Code { module, .. } = frame
            && profile.lines_of(id).is_empty()
        {
            frames.entry(*module).or_default().push(id);
        }
    }
    let mut notes = Vec::new();
    for (module, frames) in frames {
        if let Some(functions) = running_kernel(profile, module) {
            add_kernel_functions(profile, &functions, &frames)?;
            continue;
        }
        match open(profile, module, search) {
            Err(note) => notes.push(note),
            Ok(symbols) => {
                for frame in frames {
                    add_lines(profile, &symbols, frame)?;
                }
            }
        }
    }
    Ok(notes)
}

/// Returns the functions of the running kernel, if it is the module.
fn running_kernel(profile: &Profile, module: ModuleId) -> Option<KernelFunctions> {
    let module = profile.modules.get(module)?;
    let is_kernel = profile.text(module.path) == KernelFunctions::MODULE;
    let build_id = module.build_id.as_ref().filter(|_| is_kernel)?;
    KernelFunctions::of_build(build_id)
}

fn add_kernel_functions(
    profile: &mut Profile,
    functions: &KernelFunctions,
    frames: &[FrameId],
) -> Result<()> {
    for frame in frames {
        let Some(Frame::Code { offset, .. }) = profile.frames.get(*frame) else {
            continue;
        };
        if let Some(name) = functions.function_at(*offset) {
            let function = profile.function(name)?;
            profile.lines.insert(*frame, [Line { function, line: 0 }].into());
        }
    }
    Ok(())
}

/// Opens the file of a module, if it is the build that was profiled.
fn open(
    profile: &Profile,
    module: ModuleId,
    search: &DebugSearch,
) -> std::result::Result<SymbolFile, String> {
    let Some(module) = profile.modules.get(module) else {
        return Err("a module is missing".to_owned());
    };
    let path = profile.text(module.path);
    if !path.starts_with('/') {
        return Err(format!("{path} is no file; its symbols are unknown"));
    }
    let symbols = SymbolFile::open(Path::new(path), search)
        .map_err(|error| format!("the symbols of {path} are unknown: {error}"))?;
    let found = || {
        let hashed = || file_hash_id(&mut File::open(path).ok()?).ok();
        symbols.build_id().or_else(hashed)
    };
    match &module.build_id {
        Some(profiled) if found().as_ref() != Some(profiled) => Err(format!(
            "{path} is of another build than the one that was profiled; its symbols are unknown"
        )),
        _ => Ok(symbols),
    }
}

fn add_lines(profile: &mut Profile, symbols: &SymbolFile, frame: FrameId) -> Result<()> {
    let Some(Frame::Code { offset, .. }) = profile.frames.get(frame).copied() else {
        return Ok(());
    };
    let Some(at) = symbols.address_of(offset) else {
        return Ok(());
    };
    let mut lines = Vec::new();
    for found in symbols.frames_at(at) {
        let declared = found.declared.as_ref();
        let file = found.location.as_ref().map(|location| &location.file);
        let function = Function {
            name: profile.string(&found.function)?,
            linkage_name: profile.string(&found.linkage_name)?,
            file: match declared.map(|(file, _)| file).or(file) {
                None => None,
                Some(file) => Some(profile.string(file)?),
            },
            start_line: declared.map_or(0, |(_, line)| *line),
        };
        let function = profile.functions.intern(function)?;
        let line = found.location.as_ref().map_or(0, |location| location.line);
        lines.push(Line { function, line });
    }
    if !lines.is_empty() {
        profile.lines.insert(frame, lines.into());
    }
    Ok(())
}
