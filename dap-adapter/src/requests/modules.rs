//! `modules` and `loadedSources`.

use super::Ignored;
use crate::failure::Result;
use crate::protocol::lenient::IntegerOrString;
use crate::protocol::types::{
    LoadedSourcesResponseBody, Module, ModulesArguments, ModulesResponseBody, Source,
};
use crate::session::ClientSession;
use backtrail_debugger::source::short;
use backtrail_decoder::Watch;
use std::collections::BTreeMap;

/// The ELF files of the current process.
pub fn modules(
    client: &mut ClientSession,
    arguments: ModulesArguments,
    _: &Watch<'_>,
) -> Result<ModulesResponseBody> {
    let debuggee = client.debuggee()?;
    // A file is mapped in pieces.
    let mut files: BTreeMap<String, (u64, u64, bool)> = BTreeMap::new();
    for module in debuggee.navigator.symbols()?.modules() {
        let range = (module.range.start.0, module.range.end.0);
        let known = files
            .entry(module.name.to_string())
            .or_insert((range.0, range.1, false));
        *known = (
            known.0.min(range.0),
            known.1.max(range.1),
            known.2 || module.file.is_some(),
        );
    }
    let total = files.len();
    let start = usize::try_from(arguments.start_module.unwrap_or(0)).unwrap_or(0);
    let count = usize::try_from(arguments.module_count.unwrap_or(0)).unwrap_or(0);
    let modules = files
        .into_iter()
        .skip(start)
        .take(if count == 0 { total } else { count });
    let modules = modules.map(|(path, (from, to, symbols))| Module {
        id: IntegerOrString::String(path.clone()),
        name: short(&path).to_owned(),
        address_range: Some(format!("{from:#x}-{to:#x}")),
        symbol_status: Some(
            if symbols {
                "symbols loaded"
            } else {
                "its file is not available"
            }
            .to_owned(),
        ),
        path: Some(path),
        ..Module::default()
    });
    Ok(ModulesResponseBody {
        modules: modules.collect(),
        total_modules: Some(total as i64),
    })
}

/// The source files that the debug information knows.
pub fn sources(client: &mut ClientSession, _: Ignored, _: &Watch<'_>) -> Result<LoadedSourcesResponseBody> {
    let debuggee = client.debuggee()?;
    let all = debuggee.sources.all(&debuggee.navigator);
    let sources: Vec<Source> = all
        .iter()
        .map(|file| debuggee.sources.describe(&debuggee.navigator, file))
        .collect();
    Ok(LoadedSourcesResponseBody { sources })
}
