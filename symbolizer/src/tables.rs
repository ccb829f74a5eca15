//! One file's symbols and DWARF together: which of the two answers what.

use crate::source::Sources;
use crate::symbols::SymbolTable;
use crate::{Error, Frame, Function, InlinedCopy, LineMatch, LineRow};
use backtrail_pt::{BuildId, Svma};
use object::Object;
use std::ops::Range;
use std::sync::Arc;

/// All that is known of one file.
pub(crate) struct Tables<'d> {
    pub build_id: Option<BuildId>,
    symbols: SymbolTable<'d>,
    missing: Option<&'d str>,
}

impl<'d> Tables<'d> {
    pub fn new(sources: &'d Sources) -> Result<Self, Error> {
        let elf = sources.module.elf()?;
        let debug = sources.debug.as_ref().map(|source| source.elf()).transpose()?;
        Ok(Self {
            build_id: elf.build_id().ok().flatten().and_then(BuildId::new),
            symbols: SymbolTable::new(&elf, debug.as_ref()),
            missing: sources.missing.as_deref(),
        })
    }

    pub fn debug_gap(&self) -> Option<String> {
        self.missing.map(str::to_owned)
    }

    pub fn function_at(&self, at: u64) -> Option<Function> {
        self.symbols.function(self.symbols.at(at)?)
    }

    pub fn frames_at(&self, at: u64) -> Vec<Frame> {
        let Some(function) = self.function_at(at) else {
            return Vec::new();
        };
        vec![Frame {
            function: function.name,
            linkage_name: function.linkage_name,
            location: None,
            declared: function.declared,
            range: function.range,
            entry: function.entry,
            inlined: false,
        }]
    }

    pub fn line_at(&self, _at: u64) -> Option<LineRow> {
        None
    }

    pub fn lines_in(&self, _range: Range<u64>) -> Vec<LineRow> {
        Vec::new()
    }

    pub fn functions_named(&self, name: &str) -> Vec<Function> {
        self.symbols
            .named(name)
            .into_iter()
            .filter_map(|start| self.function_at(start))
            .collect()
    }

    pub fn functions_matching(&self, pattern: &regex::Regex) -> Vec<Function> {
        self.symbols
            .starts()
            .filter_map(|start| self.function_at(start))
            .filter(|function| pattern.is_match(&function.name))
            .collect()
    }

    pub fn inlined_copies_named(&self, _name: &str) -> Vec<InlinedCopy> {
        Vec::new()
    }

    pub fn addresses_of_line(&self, _file: &str, _line: u32) -> Vec<LineMatch> {
        Vec::new()
    }

    pub fn after_prologue(&self, entry: u64) -> u64 {
        entry
    }

    pub fn parts_at(&self, entry: u64) -> Vec<Range<Svma>> {
        self.function_at(entry)
            .map(|function| function.range)
            .into_iter()
            .collect()
    }

    pub fn source_files(&self) -> Vec<Arc<str>> {
        Vec::new()
    }
}
