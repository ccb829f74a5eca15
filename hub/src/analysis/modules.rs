//! The mapped files of the crashed process, and the places of addresses in them.

use super::result::{ModuleView, SymbolState};
use crate::stack::Frame;
use backtrail_bundle::manifest;
use backtrail_debugger::Session;
use backtrail_pt::Avma;
use backtrail_symbolizer::{SymbolDetail, SymbolFile, Symbolizer};

/// The most modules in a result.
const MAX_MODULES: usize = 4096;

/// The mapped files of one process at the end of its history.
pub(super) struct Modules<'a> {
    /// The files with their symbols.
    symbols: Option<&'a Symbolizer>,
    /// The files as the bundle describes them.
    described: &'a [manifest::Module],
}

/// An address within a file.
pub(super) struct Place {
    /// The path on the host.
    pub path: String,
    /// The build id.
    pub build_id: Option<String>,
    /// The file offset. `None`: unknown.
    pub offset: Option<u64>,
}

impl<'a> Modules<'a> {
    /// Returns the modules of the crashed thread's process, or of the main thread's.
    pub(super) fn of(session: &'a Session) -> Self {
        let thread = session.main_thread();
        let process = thread.and_then(|thread| session.process(thread));
        let described = session.bundle().and_then(|bundle| {
            let pid = process?.pid;
            let mut processes = bundle.manifest().processes.iter();
            processes.find(|process| process.pid == pid)
        });
        Self {
            symbols: process.map(|process| &**process.symbols_at_end()),
            described: described.map_or(&[], |process| &process.modules),
        }
    }

    /// Returns the file that is mapped at an address.
    pub(super) fn place(&self, at: u64) -> Option<Place> {
        let module = self.symbols?.module_at(Avma(at))?;
        let described = self.described_as(&module.name);
        let by_mapping = described.and_then(|described| {
            let mut mappings = described.mappings.iter();
            mappings.find_map(|mapping| {
                let within = at.checked_sub(mapping.start.0)?;
                (within < mapping.size).then(|| mapping.offset.0.saturating_add(within))
            })
        });
        let file = module.file.as_deref();
        let by_segment = || Some(file?.offset_of(Avma(at).to_svma(module.bias))?.0);
        Some(Place {
            path: module.name.to_string(),
            build_id: build_id(described, file),
            offset: by_mapping.or_else(by_segment),
        })
    }

    /// Returns whether an address is in a file outside of the directories of system libraries.
    pub(super) fn is_own(&self, at: Option<u64>) -> bool {
        let module = at.and_then(|at| self.symbols?.module_at(Avma(at)));
        module.is_some_and(|module| !is_system(&module.name))
    }

    /// Completes a frame by the file at an address.
    pub(super) fn locate(&self, frame: &mut Frame, at: u64) {
        if let Some(place) = self.place(at) {
            frame.module = Some(place.path);
            frame.build_id = place.build_id;
            frame.offset = place.offset;
        }
    }

    /// Returns all modules, by address.
    pub(super) fn views(&self) -> Vec<ModuleView> {
        // The pieces of a mapped file are adjacent.
        let pieces = self.symbols.map_or(&[][..], Symbolizer::modules);
        let files = pieces.chunk_by(|one, next| one.name == next.name && one.bias == next.bias);
        let views = files.filter_map(|pieces| {
            let (first, last) = pieces.first().zip(pieces.last())?;
            let file = pieces.iter().find_map(|piece| piece.file.as_deref());
            let symbols = match file.map(SymbolFile::detail) {
                None => SymbolState::NoFile,
                Some(SymbolDetail::None) => SymbolState::None,
                Some(SymbolDetail::SymbolTable) => SymbolState::SymbolTable,
                Some(SymbolDetail::SplitDebugInformation | SymbolDetail::DebugInformation) => {
                    SymbolState::DebugInformation
                }
            };
            Some(ModuleView {
                path: first.name.to_string(),
                build_id: build_id(self.described_as(&first.name), file),
                start: first.range.start.0,
                end: last.range.end.0,
                symbols,
                problem: file.and_then(SymbolFile::debug_gap),
            })
        });
        views.take(MAX_MODULES).collect()
    }

    fn described_as(&self, path: &str) -> Option<&'a manifest::Module> {
        self.described.iter().find(|module| module.path == path)
    }
}

/// Returns the build id as the bundle has it, or that of the file.
fn build_id(described: Option<&manifest::Module>, file: Option<&SymbolFile>) -> Option<String> {
    let described = described.and_then(|module| module.build_id.as_ref().map(ToString::to_string));
    described.or_else(|| file?.build_id().map(|id| id.to_string()))
}

/// Returns whether a source file is part of a language's library, whose code is in the program.
pub(crate) fn is_library_source(path: &str) -> bool {
    ["/rustc/", "/usr/include/"]
        .iter()
        .any(|folder| path.starts_with(folder))
}

/// Returns whether a file is a system library by its path.
pub(crate) fn is_system(path: &str) -> bool {
    ["/usr/lib", "/lib"].iter().any(|folder| path.starts_with(folder))
}
