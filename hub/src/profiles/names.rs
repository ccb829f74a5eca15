//! Names of frames that came without: the symbol service knows those of builds with debug files.

use crate::error::Result;
use crate::hub::Hub;
use crate::objects::blocking;
use crate::symbols::index_state::{BuildSymbols, symbols_of};
use backtrail_profile::{Frame, FrameId, Function, Line, ModuleId, Profile};
use backtrail_pt::FileOffset;
use backtrail_symbol_index::{Frames, Position, SymbolDetail};
use futures_util::{StreamExt, stream};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The modules that are asked for at once.
const AT_ONCE: usize = 8;
/// The most modules that a note names.
const NAMED: usize = 5;

/// Modules whose frames have no names, by reason.
#[derive(Default)]
struct Nameless {
    /// No file of the build is known.
    absent: Vec<String>,
    /// The file is being fetched or indexed.
    pending: Vec<String>,
    /// No index can be made of the file.
    malformed: Vec<String>,
    /// The module has no build id.
    without_id: Vec<String>,
    /// Only a symbol table is known of the build.
    without_lines: Vec<String>,
    /// Inlined calls are in `.dwo` files.
    split: Vec<String>,
}

/// Adds the names of frames, and notes about modules without symbols.
///
/// # Errors
/// Fails if the symbol service fails.
pub async fn add(hub: &Arc<Hub>, profile: &mut Profile) -> Result<()> {
    let mut wanted: BTreeMap<ModuleId, Vec<(FrameId, FileOffset)>> = BTreeMap::new();
    for (id, frame) in profile.frames.iter() {
        if let Frame::Code { module, offset } = frame
            && profile.lines_of(id).is_empty()
        {
            wanted.entry(*module).or_default().push((id, *offset));
        }
    }
    let mut nameless = Nameless::default();
    let mut modules = Vec::new();
    for (module, frames) in wanted {
        let Some(module) = profile.modules.get(module) else {
            continue;
        };
        let path = profile.text(module.path).to_owned();
        match module.build_id.as_ref().map(ToString::to_string) {
            Some(build_id) => modules.push((path, build_id, frames)),
            None => nameless.without_id.push(path),
        }
    }
    // The database and the bucket answer several questions at once.
    let mut found = stream::iter(modules)
        .map(|(path, build_id, frames)| {
            let hub = hub.clone();
            async move { (path, frames, symbols_of(&hub, &build_id).await) }
        })
        .buffered(AT_ONCE);
    while let Some((path, frames, symbols)) = found.next().await {
        match symbols? {
            BuildSymbols::Ready(index) => {
                let positions: Vec<_> = frames.iter().map(|(_, at)| Position::Offset(*at)).collect();
                let detail = index.detail();
                let found = blocking(move || {
                    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
                    Ok(index.lookup_all(&positions, threads))
                });
                match found.await? {
                    Ok(found) => {
                        let is_bare = |names: &Frames| names.iter().any(|name| name.line == 0);
                        let lacks_lines = || found.iter().any(|names| names.is_empty() || is_bare(names));
                        match detail {
                            SymbolDetail::SplitDebugInformation => nameless.split.push(path),
                            SymbolDetail::SymbolTable if lacks_lines() => nameless.without_lines.push(path),
                            _ => {}
                        }
                        for ((frame, _), names) in frames.iter().zip(&found) {
                            add_lines(profile, *frame, names)?;
                        }
                    }
                    Err(error) => nameless.malformed.push(format!("{path} ({error})")),
                }
            }
            BuildSymbols::Pending => nameless.pending.push(path),
            BuildSymbols::Absent => nameless.absent.push(path),
            BuildSymbols::Malformed(reason) => nameless.malformed.push(format!("{path} ({reason})")),
        }
    }
    profile.notes.extend(nameless.notes());
    Ok(())
}

fn add_lines(profile: &mut Profile, frame: FrameId, names: &Frames) -> Result<()> {
    let mut lines = Vec::with_capacity(names.len());
    for name in names.iter() {
        let function = Function {
            name: profile.string(&name.function.name)?,
            linkage_name: profile.string(&name.function.linkage_name)?,
            file: match &name.file {
                Some(file) => Some(profile.string(file)?),
                None => None,
            },
            start_line: 0,
        };
        let function = profile.functions.intern(function)?;
        lines.push(Line {
            function,
            line: name.line,
        });
    }
    if !lines.is_empty() {
        profile.lines.insert(frame, lines.into());
    }
    Ok(())
}

impl Nameless {
    fn notes(&self) -> impl Iterator<Item = String> {
        let notes = [
            (&self.absent, "no debug file is known of", "upload it"),
            (
                &self.pending,
                "the symbols are being prepared of",
                "load the page again in a moment",
            ),
            (
                &self.malformed,
                "no symbols can be read of",
                "upload another debug file",
            ),
            (
                &self.without_id,
                "symbols are unknown, for lack of a build id, of",
                "link with --build-id",
            ),
            (
                &self.without_lines,
                "only the symbol table is known, without lines and inlined calls, of",
                "upload a debug file",
            ),
            (
                &self.split,
                "inlined calls are missing, which are in .dwo files, of",
                "make their package by dwp, and send it with the program by backtrail push-symbols",
            ),
        ];
        let found = notes.map(|(modules, problem, advice)| note(modules, problem, advice));
        found.into_iter().flatten()
    }
}

/// Returns a sentence about some modules.
fn note(modules: &[String], problem: &str, advice: &str) -> Option<String> {
    let named = modules.get(..modules.len().min(NAMED))?.join(", ");
    match (modules.len(), modules.len().saturating_sub(NAMED)) {
        (0, _) => None,
        (_, 0) => Some(format!("{problem} {named}; {advice}")),
        (_, rest) => Some(format!("{problem} {named} and {rest} other modules; {advice}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_few_modules() {
        let modules: Vec<String> = (0..7).map(|number| format!("/lib{number}.so")).collect();
        assert_eq!(
            note(&modules, "no symbols of", "upload them").unwrap(),
            "no symbols of /lib0.so, /lib1.so, /lib2.so, /lib3.so, /lib4.so and 2 other modules; upload them"
        );
        assert_eq!(
            note(&modules[..1], "no symbols of", "upload it").unwrap(),
            "no symbols of /lib0.so; upload it"
        );
        assert_eq!(note(&[], "", ""), None);
    }
}
