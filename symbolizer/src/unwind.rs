//! Call frame information: rules to recover the caller's registers from those of the called
//! function.
//!
//! Sources: DWARF 5, section 6.4; `.eh_frame` and `.eh_frame_hdr` in the Linux Standard Base,
//! "Exception Frames"; register numbers in the System V ABI AMD64, section 3.6.2.

mod expression;
mod header;
mod row;
mod table;

pub use expression::{Expression, Machine};
pub use row::{CfaRule, RegisterRule, UnwindRow};

use crate::code::CodeRanges;
use crate::dwarf::{Budget, Slice};
use crate::source::Elf;
use crate::sources::Sources;
use gimli::{DebugFrame, EhFrame, LittleEndian};
use header::EhFrameSection;
use object::{Object, ObjectSection};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};
use table::Table;

/// Rows by address. The value is `None` if an address has no row.
type RowCache = FxHashMap<u64, Option<Arc<UnwindRow>>>;

/// The call frame information of one file. Entries are parsed on demand.
pub(crate) struct UnwindTables<'d> {
    eh_frame: Option<Table<'d, EhFrame<Slice<'d>>>>,
    /// The sections of the module and of its separate debug file.
    debug_frames: Vec<Table<'d, DebugFrame<Slice<'d>>>>,
    known: Mutex<RowCache>,
    budget: Budget,
}

impl<'d> UnwindTables<'d> {
    /// Finds the sections without parsing them.
    pub fn new(sources: &'d Sources, code: &CodeRanges) -> Self {
        let mut size = 0u64;
        let module = sources.module.elf().ok();
        let found = module.as_ref().and_then(header::find);
        let eh_frame = module.as_ref().zip(found).map(|(elf, found)| {
            size = size.saturating_add(found.bytes.len() as u64);
            let mut section = EhFrame::new(found.bytes, LittleEndian);
            section.set_address_size(8);
            Table::new(
                section,
                found.bytes,
                bases(elf, &found),
                found.index,
                code.clone(),
            )
        });
        let mut debug_frames = Vec::new();
        for source in [Some(&sources.module), sources.debug.as_ref()]
            .into_iter()
            .flatten()
        {
            let bytes = source
                .elf()
                .map(|elf| source.section(&elf, ".debug_frame"))
                .unwrap_or_default();
            if bytes.is_empty() {
                continue;
            }
            size = size.saturating_add(bytes.len() as u64);
            let mut section = DebugFrame::new(bytes, LittleEndian);
            section.set_address_size(8);
            let bases = gimli::BaseAddresses::default();
            debug_frames.push(Table::new(section, bytes, bases, None, code.clone()));
        }
        Self {
            eh_frame,
            debug_frames,
            known: Mutex::default(),
            budget: Budget::new(size),
        }
    }

    /// Returns the row that covers `at`.
    pub fn row(&self, at: u64) -> Option<Arc<UnwindRow>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = known.get(&at) {
            return row.clone();
        }
        self.budget.spend(size_of::<UnwindRow>())?;
        let in_debug_frames = || {
            let mut tables = self.debug_frames.iter();
            tables.find_map(|table| table.row(at, &self.budget))
        };
        let row = self
            .eh_frame
            .as_ref()
            .and_then(|table| table.row(at, &self.budget))
            .or_else(in_debug_frames)
            .map(Arc::new);
        known.insert(at, row.clone());
        row
    }
}

/// Returns the bases of encoded addresses in `.eh_frame`.
fn bases(elf: &Elf, found: &EhFrameSection<'_>) -> gimli::BaseAddresses {
    let mut bases = gimli::BaseAddresses::default().set_eh_frame(found.address);
    let address = |name| elf.section_by_name(name).map(|section| section.address());
    if let Some(text) = address(".text") {
        bases = bases.set_text(text);
    }
    if let Some(got) = address(".got") {
        bases = bases.set_got(got);
    }
    bases
}
