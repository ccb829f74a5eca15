//! The stack of the crashed thread by addresses, without symbols.
//!
//! A host reports a crash by these addresses. Neither the packets nor the debug information is
//! read: only the core, the program headers and the call frame information of the modules.

use crate::error::Result;
use crate::session::{loads, lowest, process_of};
use crate::unwind::{self, Memory, NoHistory, PhysicalFrame};
use backtrail_bundle::Bundle;
use backtrail_bundle::core::Core;
use backtrail_bundle::manifest::{Module, Process};
use backtrail_pt::{Avma, FileOffset, Tid};

/// The type of the entry of the auxiliary vector with the address of the vdso.
const AT_SYSINFO_EHDR: u64 = 33;
/// The largest vdso in bytes.
const MAX_VDSO: u64 = 1 << 16;

/// A stack by addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashStack {
    /// Innermost first.
    pub frames: Vec<CodeAddress>,
    /// The reason why older frames are missing. `None` if none are.
    pub end: Option<String>,
}

/// The address of a frame: the instruction of the innermost frame and of an interrupted one, and
/// the last byte of the call of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeAddress {
    /// The address in the process.
    pub address: Avma,
    /// The contents at the address.
    pub origin: CodeOrigin,
}

/// The origin of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodeOrigin {
    /// A module, by its index in the manifest's process.
    Module {
        /// The index.
        index: usize,
        /// The offset in the module's file.
        offset: FileOffset,
    },
    /// The kernel's vdso.
    Vdso {
        /// The offset from its start.
        offset: u64,
    },
    /// No file: code that was made at run time, or no code at all.
    Unknown,
}

impl CrashStack {
    /// Returns the stack of a thread in the core of its process, at most `limit` frames.
    ///
    /// # Errors
    /// Fails if the bundle is malformed.
    pub fn of(bundle: &Bundle, process: &Process, tid: Tid, limit: usize) -> Result<Self> {
        let without_frames = |reason: &str| Self {
            frames: Vec::new(),
            end: Some(reason.to_owned()),
        };
        let Some(core) = bundle.core_of(process.pid)? else {
            return Ok(without_frames("the bundle has no core"));
        };
        let Some(thread) = core.thread(tid).or_else(|| core.crashed_thread()) else {
            return Ok(without_frames("the core does not have the thread"));
        };
        let opened = process_of(bundle, process)?;
        let memory = Memory::new(&core, &opened.image);
        let symbols = opened.symbols_at_end();
        let unwound = unwind::unwind(&thread.registers, symbols, &memory, &NoHistory);
        let is_cut = unwound.frames.len() > limit;
        let addresses = unwound.frames.iter().take(limit).map(PhysicalFrame::look_up);
        let frames = addresses.map(|address| CodeAddress {
            address,
            origin: origin(bundle, process, &core, address),
        });
        Ok(Self {
            frames: frames.collect(),
            end: match is_cut {
                true => Some(format!("the stack is cut after {limit} frames")),
                false => unwound.end.reason(),
            },
        })
    }
}

/// Returns the origin of the code at an address, at the end of the trace.
fn origin(bundle: &Bundle, process: &Process, core: &Core, address: Avma) -> CodeOrigin {
    // Later modules cover earlier ones.
    let modules = process.modules.iter().enumerate().rev();
    let mut lasting = modules.filter(|(_, module)| module.mapped_until.is_none());
    let found = lasting.find_map(|(index, module)| {
        let offset = offset_in(bundle, module, address)?;
        Some(CodeOrigin::Module { index, offset })
    });
    if let Some(found) = found {
        return found;
    }
    let mut auxv = core.contents().auxv.iter();
    let vdso = auxv.find(|(kind, _)| *kind == AT_SYSINFO_EHDR);
    let offset = vdso.and_then(|&(_, start)| address.0.checked_sub(start));
    match offset.filter(|&offset| offset < MAX_VDSO) {
        Some(offset) => CodeOrigin::Vdso { offset },
        None => CodeOrigin::Unknown,
    }
}

/// Returns the offset of an address in the file of a module, if the module is mapped there.
fn offset_in(bundle: &Bundle, module: &Module, address: Avma) -> Option<FileOffset> {
    if !module.mappings.is_empty() {
        let lasting = module
            .mappings
            .iter()
            .rev()
            .filter(|mapping| mapping.until.is_none());
        let distance = |start: Avma| address.0.checked_sub(start.0);
        return lasting
            .filter_map(|mapping| Some((distance(mapping.start)?, mapping)))
            .find(|(distance, mapping)| *distance < mapping.size)
            .and_then(|(distance, mapping)| Some(FileOffset(mapping.offset.0.checked_add(distance)?)));
    }
    let bytes = bundle.bytes(module.file.as_ref()?).ok()?;
    let segments = loads(&bytes);
    let bias = module.bias(lowest(&segments)?);
    segments.iter().find_map(|segment| {
        let distance = address.0.checked_sub(segment.at.to_avma(bias).0)?;
        let offset = segment.stored.start.checked_add(distance)?;
        (distance < segment.size && offset < segment.stored.end).then_some(FileOffset(offset))
    })
}
