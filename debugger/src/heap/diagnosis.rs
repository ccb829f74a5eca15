//! Explains a crash by the history of the heap: a use after free, or a wrong free.

use super::calls::{CallSource, call_around, last_call};
use super::loads::{last_accesses, pointers};
use super::place::{HeapPlace, place};
use super::records::ProcessRecords;
use super::search::{BlockView, CoveringBlock, covering, place_of};
use crate::error::Result;
use crate::session::{Session, Thread};
use crate::stack::unwound;
use backtrail_decoder::Watch;
use serde::Serialize;
use std::fmt;

/// The signals that have a fault address: SIGBUS and SIGSEGV.
const WITH_ADDRESS: [i32; 2] = [7, 11];
/// `si_code` of a general protection fault (`SI_KERNEL`). The processor reports no address then.
const GENERAL_PROTECTION: i32 = 0x80;
/// SIGABRT.
const ABORTED: i32 = 6;
/// No block is below this address.
const LOWEST: u64 = 1 << 16;

/// An explanation of a crash by the history of the heap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeapDiagnosis {
    /// The finding.
    #[serde(flatten)]
    pub finding: HeapFinding,
    /// The block.
    pub block: BlockView,
}

/// A finding about a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum HeapFinding {
    /// A freed block was accessed. This is certain.
    UseAfterFree {
        /// The address.
        address: u64,
        /// The position of the access; absent: the access of the crash.
        #[serde(skip_serializing_if = "Option::is_none")]
        access: Option<String>,
    },
    /// A register points into a freed block. Whether the block was accessed is unknown.
    PointerToFreed {
        /// The register.
        register: String,
        /// Its value.
        address: u64,
    },
    /// The last call of an allocator function frees a block that is freed already.
    DoubleFree {
        /// The block.
        address: u64,
        /// The second free.
        again: HeapPlace,
    },
    /// The last call of an allocator function frees an address inside a block.
    FreeInsideBlock {
        /// The address.
        address: u64,
        /// The call.
        by: HeapPlace,
    },
}

/// Explains the crash of the session. `None`: the trace has no heap events, or they explain
/// nothing.
///
/// # Errors
///
/// If heap events are not decoded yet; when canceled.
pub fn diagnose(session: &Session, watch: &Watch<'_>) -> Result<Option<HeapDiagnosis>> {
    let records = ProcessRecords::of(session)?;
    let has_calls = super::has_events(session) || records.is_some();
    let Some(crash) = session.crash().filter(|_| has_calls) else {
        return Ok(None);
    };
    let thread = session.thread(crash.tid).ok().or_else(|| session.main_thread());
    let of_records = |thread: &Thread| {
        let pid = session.process(thread).map(|process| process.pid);
        records
            .as_ref()
            .is_some_and(|records| Some(records.records.interval.pid) == pid)
    };
    let is_known = |thread: &&Thread| match records {
        Some(_) => of_records(thread),
        None => !thread.history.is_empty(),
    };
    let Some(thread) = thread.filter(is_known) else {
        return Ok(None);
    };
    if crash.signal == ABORTED {
        return match &records {
            Some(records) => wrong_free_in_records(session, thread, records, watch),
            None => wrong_free(session, thread, watch),
        };
    }
    match WITH_ADDRESS.contains(&crash.signal) {
        true => use_after_free(session, thread, records.as_ref(), watch),
        false => Ok(None),
    }
}

/// The evidence that a block was used.
enum Evidence {
    /// The crash has accessed the address.
    Fault,
    /// Instruction `index` of the thread has accessed the address.
    Access(u64),
    /// A register has the address.
    Register(String),
}

fn use_after_free(
    session: &Session,
    thread: &Thread,
    records: Option<&ProcessRecords<'_>>,
    watch: &Watch<'_>,
) -> Result<Option<HeapDiagnosis>> {
    let fault = session.crash().and_then(|crash| crash.fault_address);
    let code = session.crash().map(|crash| crash.code);
    // After an access through a null pointer, registers hold pointers by chance.
    let is_null = code != Some(GENERAL_PROTECTION) && fault.is_some_and(|address| address.0 < LOWEST);
    let mut candidates: Vec<(Evidence, u64)> = Vec::new();
    candidates.extend(fault.map(|address| (Evidence::Fault, address.0)));
    let accesses = last_accesses(session, thread).into_iter();
    candidates.extend(accesses.map(|access| (Evidence::Access(access.index), access.address)));
    if let Some(registers) = session.end_registers(thread.tid).filter(|_| !is_null) {
        let pointers = pointers(registers).map(|(name, value)| (Evidence::Register(name), value));
        candidates.extend(pointers);
    }
    candidates.retain(|&(_, address)| (LOWEST..1 << 47).contains(&address));
    let addresses: Vec<u64> = candidates.iter().map(|&(_, address)| address).collect();
    if addresses.is_empty() {
        return Ok(None);
    }
    let found = covering(session, thread, &addresses, watch)?;
    for (evidence, address) in candidates {
        let Some(block) = freed_block(&found.blocks, address).filter(|block| is_certain(block, records))
        else {
            continue;
        };
        let finding = match evidence {
            Evidence::Fault => HeapFinding::UseAfterFree {
                address,
                access: None,
            },
            Evidence::Access(index) => {
                if !is_freed_before(session, thread, index, block, records)? {
                    continue;
                }
                HeapFinding::UseAfterFree {
                    address,
                    access: Some(thread.position(index).to_string()),
                }
            }
            Evidence::Register(register) => HeapFinding::PointerToFreed { register, address },
        };
        return Ok(Some(HeapDiagnosis {
            finding,
            block: block.view(session, address, watch)?,
        }));
    }
    Ok(None)
}

/// Returns the newest block at an address, if it is freed, and all blocks there are.
///
/// A block whose allocation is not in the history is freed for certain only at its start.
fn freed_block(blocks: &[CoveringBlock], address: u64) -> Option<&CoveringBlock> {
    let mut at = blocks.iter().filter(|block| block.contains(address));
    let newest = at.next()?;
    // A block that lives covers the address, whatever the order of the others.
    let lives = |block: &CoveringBlock| !block.is_freed() && !block.life.is_replaced;
    (newest.is_freed() && !at.any(lives)).then_some(newest)
}

/// Returns whether no lost call can have allocated the address of a freed block again.
fn is_certain(block: &CoveringBlock, records: Option<&ProcessRecords<'_>>) -> bool {
    let freed = block.life.freed.and_then(|freed| freed.earliest);
    records.is_none_or(|records| freed.is_some_and(|freed| !records.has_gap_after(freed)))
}

/// Returns whether a block was freed before instruction `index` of a thread, by the order in the
/// thread or by time stamps.
fn is_freed_before(
    session: &Session,
    thread: &Thread,
    index: u64,
    block: &CoveringBlock,
    records: Option<&ProcessRecords<'_>>,
) -> Result<bool> {
    let Some(freed) = block.life.freed else {
        return Ok(false);
    };
    let began = thread.history.time(index).map(|time| time.tsc.0);
    if let CallSource::Record { began: time, .. } = freed.place.source {
        let bounds = records.and_then(|records| records.tsc_bounds(time));
        return Ok(began
            .zip(bounds)
            .is_some_and(|(began, [_, latest])| latest.0 <= began));
    }
    if freed.place.tid == thread.tid {
        return Ok(freed.place.call.index < index);
    }
    let other = session.thread(freed.place.tid)?;
    let ended = other
        .history
        .time(freed.place.call.index)
        .and_then(|time| time.latest());
    Ok(began.zip(ended).is_some_and(|(began, ended)| ended.0 <= began))
}

/// Explains an abort in a call that frees a block.
fn wrong_free(session: &Session, thread: &Thread, watch: &Watch<'_>) -> Result<Option<HeapDiagnosis>> {
    let len = thread.history.len();
    let Some(call) = last_call(&thread.history, len).filter(|call| call.function.takes_block()) else {
        return Ok(None);
    };
    // The call has not returned.
    let forest = session.forest(thread, watch)?;
    let address = call.argument;
    let runs = call_around(&thread.history, forest, len) == Some(call);
    if call.result.is_some() || address == 0 || !runs {
        return Ok(None);
    }
    let found = covering(session, thread, &[address], watch)?;
    let is_this = |block: &&CoveringBlock| {
        let freed = block.life.freed.map(|event| event.place);
        freed.is_some_and(|at| at.tid == thread.tid && at.call.index == call.index)
    };
    let by = || place(session, thread, &call, watch);
    let Some(own) = found.blocks.iter().find(is_this) else {
        return of_unfinished_realloc(session, address, &found.blocks, by, watch);
    };
    if own.life.allocated.is_some() {
        // The block lived: other memory of the allocator is damaged.
        return Ok(None);
    }
    let mut before = found.blocks.iter().filter(|block| !is_this(block));
    let Some(block) = before.next() else {
        return Ok(None);
    };
    let view = block.view(session, address, watch)?;
    let finding = match (block.start == address, block.is_freed()) {
        (true, true) => HeapFinding::DoubleFree {
            address,
            again: by()?,
        },
        (false, false) => HeapFinding::FreeInsideBlock { address, by: by()? },
        _ => return Ok(None),
    };
    Ok(Some(HeapDiagnosis { finding, block: view }))
}

/// Explains an abort in a call that frees a block, by the collector's records.
fn wrong_free_in_records(
    session: &Session,
    thread: &Thread,
    records: &ProcessRecords<'_>,
    watch: &Watch<'_>,
) -> Result<Option<HeapDiagnosis>> {
    let last = records.last_call(thread.tid);
    let Some((at, record)) = last.filter(|(at, _)| at.call.freed().is_some()) else {
        return Ok(None);
    };
    // The call has not returned: its return address is on the stack.
    let stack = unwound(session, thread);
    let runs = stack.is_some_and(|stack| stack.frames.iter().any(|frame| frame.pc == record.caller));
    if !runs {
        return Ok(None);
    }
    let address = at.call.argument;
    let found = covering(session, thread, &[address], watch)?;
    let is_this = |block: &CoveringBlock| block.life.freed.is_some_and(|freed| freed.place == at);
    if found
        .blocks
        .iter()
        .any(|block| is_this(block) && block.life.allocated.is_some())
    {
        // The block lived: other memory of the allocator is damaged.
        return Ok(None);
    }
    let Some(block) = found.blocks.iter().find(|block| !is_this(block)) else {
        return Ok(None);
    };
    if !is_certain(block, Some(records)) && block.is_freed() {
        return Ok(None);
    }
    let by = place_of(session, &at, watch)?;
    let finding = match (block.start == address, block.is_freed()) {
        (true, true) => HeapFinding::DoubleFree { address, again: by },
        (false, false) => HeapFinding::FreeInsideBlock { address, by },
        _ => return Ok(None),
    };
    Ok(Some(HeapDiagnosis {
        finding,
        block: block.view(session, address, watch)?,
    }))
}

/// Explains an abort in `realloc`, which has not freed its block.
fn of_unfinished_realloc(
    session: &Session,
    address: u64,
    blocks: &[CoveringBlock],
    by: impl Fn() -> Result<HeapPlace>,
    watch: &Watch<'_>,
) -> Result<Option<HeapDiagnosis>> {
    let Some(block) = blocks
        .first()
        .filter(|block| block.start == address && block.is_freed())
    else {
        return Ok(None);
    };
    Ok(Some(HeapDiagnosis {
        finding: HeapFinding::DoubleFree {
            address,
            again: by()?,
        },
        block: block.view(session, address, watch)?,
    }))
}

impl fmt::Display for HeapDiagnosis {
    /// Writes one sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certain = match &self.finding {
            HeapFinding::UseAfterFree { .. } => "use after free",
            HeapFinding::PointerToFreed { .. } => "perhaps a use after free",
            HeapFinding::DoubleFree { .. } => "double free",
            HeapFinding::FreeInsideBlock { .. } => "free of an address inside a block",
        };
        write!(f, "{certain}: ")?;
        if let Some(freed) = &self.block.freed {
            let thread = freed.name.as_deref().map(|name| format!("\"{name}\""));
            let thread = thread.unwrap_or_else(|| freed.thread.to_string());
            write!(f, "freed by thread {thread} in {freed}")?;
            f.write_str(", ")?;
        }
        match &self.block.allocated {
            Some(allocated) => write!(f, "allocated by {allocated}"),
            None => f.write_str("allocated before the history"),
        }
    }
}

/// Returns the position of a call, or else its time.
fn at(place: &HeapPlace) -> String {
    place.position.clone().unwrap_or_else(|| place.moment())
}

impl HeapDiagnosis {
    /// Returns the evidence in one sentence.
    #[must_use]
    pub fn evidence(&self) -> String {
        let BlockView {
            block, size, offset, ..
        } = &self.block;
        let size = size.map_or_else(|| "unknown size".to_owned(), |size| format!("{size} bytes"));
        let inside = format!("{offset} bytes inside the block of {size} at {block:#x}");
        match &self.finding {
            HeapFinding::UseAfterFree {
                address,
                access: None,
            } => {
                format!("The crash accessed {address:#x}, {inside}.")
            }
            HeapFinding::UseAfterFree {
                address,
                access: Some(position),
            } => format!("The instruction at {position} accessed {address:#x}, {inside}."),
            HeapFinding::PointerToFreed { register, address } => {
                format!("{register} is {address:#x}, {inside}; whether that was accessed is unknown.")
            }
            HeapFinding::DoubleFree { again, .. } => {
                format!("{again} frees {block:#x} ({size}) again at {}.", at(again))
            }
            HeapFinding::FreeInsideBlock { address, by } => {
                format!("{by} frees {address:#x} at {}, {inside}.", at(by))
            }
        }
    }
}
