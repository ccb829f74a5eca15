//! Names and lines of a profile's code, from the files on this machine.

use backtrail_profile::{Frame, FrameId, Function, Line, ModuleId, Profile, Result, file_hash_id};
use backtrail_profiler::{KernelFunctions, Vdso};
use backtrail_pt::FileOffset;
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Adds lines to the frames that have none. A file whose build id is not that of the profile is not
/// used. Returns a sentence for each module that has frames but no symbols, or no build id.
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
        if let Some(functions) = HostFunctions::of(profile, module) {
            add_host_functions(profile, &functions, &frames)?;
            continue;
        }
        match open(profile, module, search) {
            Err(note) => notes.push(note),
            Ok(symbols) => {
                notes.extend(note_without_id(profile, module));
                for frame in frames {
                    add_lines(profile, &symbols, frame)?;
                }
            }
        }
    }
    Ok(notes)
}

/// The functions of code that no file of this machine has.
enum HostFunctions {
    Kernel(KernelFunctions),
    Vdso(&'static Vdso),
}

impl HostFunctions {
    /// Returns the functions of a module, if it is the running kernel or this machine's vDSO.
    fn of(profile: &Profile, module: ModuleId) -> Option<Self> {
        let module = profile.modules.get(module)?;
        let build_id = module.build_id.as_ref()?;
        match profile.text(module.path) {
            KernelFunctions::MODULE => KernelFunctions::of_build(build_id).map(Self::Kernel),
            Vdso::MODULE => {
                let vdso = Vdso::of_this_machine()?;
                (vdso.build_id() == Some(build_id)).then_some(Self::Vdso(vdso))
            }
            _ => None,
        }
    }

    fn function_at(&self, offset: FileOffset) -> Option<&str> {
        match self {
            Self::Kernel(kernel) => kernel.function_at(offset),
            Self::Vdso(vdso) => vdso.function_at(offset),
        }
    }
}

fn add_host_functions(profile: &mut Profile, functions: &HostFunctions, frames: &[FrameId]) -> Result<()> {
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

/// Returns a sentence about a module without a build id. Its file may have been built again.
fn note_without_id(profile: &Profile, module: ModuleId) -> Option<String> {
    let module = profile.modules.get(module)?;
    let path = profile.text(module.path);
    let note = || format!("{path} has no build id; its symbols may be of another build");
    module.build_id.is_none().then(note)
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
        let place = place_of(&found);
        let function = Function {
            name: profile.string(&found.function)?,
            linkage_name: profile.string(&found.linkage_name)?,
            file: match place.0 {
                "" => None,
                file => Some(profile.string(file)?),
            },
            start_line: place.1,
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

/// Returns the file of a frame's line, and the line of the declaration if it is in this file. A
/// frame without a line has the file of the declaration.
fn place_of(frame: &backtrail_symbolizer::Frame) -> (&str, u32) {
    let declared = frame.declared.as_ref().map(|(file, line)| (&**file, *line));
    let location = frame
        .location
        .as_ref()
        .map(|location| (&*location.file, location.line));
    match (location, declared) {
        (Some((file, _)), Some((declared, line))) if file == declared => (file, line),
        (None | Some((_, 0)), Some(declared)) => declared,
        (Some((file, _)), _) => (file, 0),
        (None, None) => ("", 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::Module;
    use backtrail_pt::Svma;
    use backtrail_symbolizer::{Frame as SymbolFrame, SourceLocation};

    fn frame(declared: Option<(&str, u32)>, location: Option<(&str, u32)>) -> SymbolFrame {
        SymbolFrame {
            function: "f".into(),
            linkage_name: "f".into(),
            location: location.map(|(file, line)| SourceLocation {
                file: file.into(),
                line,
                column: 0,
            }),
            declared: declared.map(|(file, line)| (file.into(), line)),
            range: Svma(1)..Svma(2),
            entry: Svma(1),
            inlined: false,
        }
    }

    #[test]
    fn file_is_that_of_the_line() {
        let declared = Some(("c1.h", 3));
        let cases = [
            (declared, Some(("c1.h", 4)), ("c1.h", 3)),
            (declared, Some(("c1.c", 10)), ("c1.c", 0)),
            (declared, Some(("c1.c", 0)), ("c1.h", 3)),
            (declared, None, ("c1.h", 3)),
            (None, Some(("c1.c", 10)), ("c1.c", 0)),
            (None, None, ("", 0)),
        ];
        for (declared, location, expected) in cases {
            assert_eq!(place_of(&frame(declared, location)), expected);
        }
    }

    #[test]
    fn module_without_build_id_has_a_note() {
        let mut profile = Profile::default();
        let path = profile.string("/bin/app").unwrap();
        let mut module = |build_id: Option<&str>| {
            let build_id = build_id.map(|id| id.parse().unwrap());
            profile.modules.intern(Module { build_id, path }).unwrap()
        };
        let (with, without) = (module(Some("aabb")), module(None));
        assert_eq!(note_without_id(&profile, with), None);
        assert_eq!(
            note_without_id(&profile, without).unwrap(),
            "/bin/app has no build id; its symbols may be of another build"
        );
    }
}
