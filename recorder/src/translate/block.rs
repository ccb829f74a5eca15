//! Translates one block of the program for the code cache: the same instructions, with stubs that
//! log the control flow.
//!
//! A block starts at one address and follows direct jumps, direct calls and the likely direction of
//! conditional branches. It ends at an indirect branch, a system call or its maximum length. Short
//! loops are unrolled. A superblock also continues along the side exits for some instructions.
//!
//! At every exit of a block the outcomes of its branches are known. A path through it therefore
//! costs one byte of log, instead of one per branch.
//!
//! Translation is a pure function of code and address. The state at a cache address is
//! reconstructed by translating again, so no tables are stored ([`Block::entries`]).

mod allocator_calls;
mod side_exits;
mod source_bytes;
mod stubs;
mod value_plan;
mod value_stubs;
mod x87;

use super::address_field::AddressField;
use super::assembler::{Assembler, Scratch};
use super::event::{LogEvent, NO_OUTCOMES};
use super::layout;
use super::staged::{Staged, Unstaged};
use super::watched::WatchedFunctions;
use backtrail_pt::cofi::Cofi;
use iced_x86::{Code, ConstantOffsets, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
pub(super) use source_bytes::SourceBytes;
use std::num::NonZeroU32;
pub(super) use x87::x87_pointer;

/// The maximum number of instructions in a block.
const MAX_INSTRUCTIONS: usize = 32;
/// The length of the longest instruction, in bytes.
const MAX_LEN: usize = 15;

/// Options for translating one block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockOptions {
    /// Fill [`Block::entries`]. The code is the same without them.
    pub(super) entries: bool,
    /// Log calls, so that returns can be compressed.
    pub(super) calls: bool,
    /// The version of the code that the block belongs to, if its code has changed before. Threads
    /// that have not logged this version trap.
    pub(super) min_version: Option<NonZeroU32>,
    /// Continue along side exits too.
    pub(super) superblock: bool,
    /// Log values.
    pub(super) values: bool,
}

/// Reads code at an address, and returns the number of bytes read.
pub(super) type Fetch<'a> = dyn FnMut(u64, &mut [u8]) -> usize + 'a;

/// The registers that are spilled to the region while a stub uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpilledRegisters(u8);

impl SpilledRegisters {
    /// No register.
    pub(super) const NONE: Self = Self(0);
    const RAX: Self = Self(1 << Scratch::Rax as u8);
    const RCX: Self = Self(1 << Scratch::Rcx as u8);
    const RDX: Self = Self(1 << Scratch::Rdx as u8);
    /// All three registers.
    pub(super) const ALL: Self = Self::RAX.and(Self::RCX).and(Self::RDX);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether this register is spilled.
    pub(super) fn holds(self, register: Scratch) -> bool {
        self.0 & (1 << register as u8) != 0
    }
}

/// The address that executes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextIp {
    At(u64),
    /// The address in RAX.
    InRax,
}

/// The progress of a program instruction at a cache address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionState {
    /// The instruction has not executed.
    Before(SpilledRegisters),
    /// The instruction has executed. Its event, if any, is not logged yet.
    Done {
        spilled: SpilledRegisters,
        event: Option<LogEvent>,
        next: NextIp,
    },
    /// The system call is logged but has not executed.
    Logged(SpilledRegisters),
    /// The system call has executed. RCX must be set to the address after it.
    Returned { spilled: SpilledRegisters, next: u64 },
}

/// The program state from cache offset `offset` to the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TranslationEntry {
    pub(super) offset: u32,
    /// The address of the program's instruction.
    pub(super) ip: u64,
    pub(super) state: InstructionState,
    /// Outcomes that are not logged yet.
    pub(super) outcomes: u8,
    /// The program address after the last logged event.
    pub(super) logged_ip: u64,
    /// Values that are not logged yet.
    pub(super) staged: Staged,
    /// Values that follow them, and that the recorder must log itself.
    pub(super) unstaged: Unstaged,
}

/// The reason for a trap in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockTrap {
    /// The block at address `target` is next. The jump with its displacement at offset `site` may
    /// be linked to it.
    Exit { site: u32, target: u64 },
    /// The recorder must make this system call.
    InterceptedSyscall { ip: u64, next: u64 },
    /// The thread must log the current code version before it continues.
    StaleVersion { ip: u64 },
    /// This instruction must execute natively, at its original address.
    Native { ip: u64, outcomes: u8 },
    /// This POPF sets the trap flag.
    SetsTrapFlag { ip: u64, outcomes: u8 },
    /// The instruction at `ip` has stored the x87 instruction pointer.
    StoredX87Pointer { ip: u64 },
    /// The instruction at `ip` is about to execute, and the recorder must log its loads.
    Predicted { ip: u64 },
    /// The instruction at `ip` is about to execute, and the recorder must store its operand under
    /// a mask on the stage, at `slot`.
    Masked { ip: u64, slot: u32 },
}

/// A translated block.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// The machine code.
    pub(super) code: Vec<u8>,
    /// The offsets and reasons of the `int3` instructions.
    pub(super) traps: Vec<(u32, BlockTrap)>,
    /// The program code that the block was translated from.
    pub(super) source: SourceBytes,
    /// Ascending by offset. Empty unless requested.
    pub(super) entries: Vec<TranslationEntry>,
    /// Addresses that are likely to execute next.
    pub(super) successors: Vec<u64>,
    /// The offsets of the fields that depend on addresses.
    pub(super) fields: Vec<(u32, AddressField)>,
    /// An operand was out of reach, so that at other addresses the code would be another.
    pub(super) depends_on_place: bool,
}

impl Block {
    /// Returns the state of a thread at `offset`.
    pub(super) fn entry_at(&self, offset: u32) -> Option<&TranslationEntry> {
        let after = self.entries.partition_point(|entry| entry.offset <= offset);
        self.entries.get(after.checked_sub(1)?)
    }
}

/// Translates the block at `ip` for cache address `at`, a multiple of 16. Calls of `watched`
/// functions are logged.
pub(super) fn translate(
    ip: u64,
    at: u64,
    options: BlockOptions,
    watched: Option<&WatchedFunctions>,
    fetch: &mut Fetch<'_>,
) -> Block {
    let mut translator = Translator {
        at,
        options,
        watched,
        out: Assembler::new(),
        block: Block {
            traps: Vec::with_capacity(8),
            successors: Vec::with_capacity(8),
            source: SourceBytes::new(),
            ..Block::default()
        },
        outcomes: NO_OUTCOMES,
        logged_ip: ip,
        pending_call: None,
        packetless: true,
        links: Vec::with_capacity(8),
        constants: Vec::new(),
        side_exits: Vec::with_capacity(8),
        exits_written: 0,
        depth: 0,
        written: 0,
        staged: Staged::default(),
        unstaged: Unstaged::Nothing,
    };
    translator.run(ip, fetch);
    translator.finish()
}

/// An instruction of the program.
struct SourceInstruction<'a> {
    ip: u64,
    bytes: &'a [u8],
    instruction: Instruction,
    offsets: ConstantOffsets,
}

impl SourceInstruction<'_> {
    fn next(&self) -> u64 {
        self.ip.wrapping_add(self.bytes.len() as u64)
    }
}

/// The unlikely direction of a conditional branch.
#[derive(Clone, Copy)]
struct SideExit {
    /// The offset of the displacement of the jump to the side exit.
    rel32: usize,
    /// The address of the branch.
    ip: u64,
    /// Pending outcomes, including the one of the branch.
    outcomes: u8,
    /// The program address after the last logged event.
    logged_ip: u64,
    target: u64,
    /// [`Translator::depth`] of the branch.
    depth: u8,
    /// [`Translator::staged`] at the branch.
    staged: Staged,
}

struct Translator<'a> {
    at: u64,
    options: BlockOptions,
    watched: Option<&'a WatchedFunctions>,
    out: Assembler,
    block: Block,
    outcomes: u8,
    logged_ip: u64,
    /// A call that has executed but is not logged yet: its address and its return address.
    pending_call: Option<(u64, u64)>,
    /// No event that becomes a packet has been logged since the start of the block.
    packetless: bool,
    /// Jumps to other blocks: the offset of the displacement, and the target.
    links: Vec<(usize, u64)>,
    /// Displacements of constants, with their values.
    constants: Vec<(usize, u64)>,
    /// Branches whose side exits are still to be written.
    side_exits: Vec<SideExit>,
    /// The number of side exits that are written.
    exits_written: usize,
    /// The number of side exits on the path to here.
    depth: u8,
    /// The number of instructions translated so far.
    written: usize,
    /// Values that are not logged yet.
    staged: Staged,
    /// The values of the current instruction that follow them.
    unstaged: Unstaged,
}

/// The continuation after an instruction in a block.
enum Flow {
    ContinueAt(u64),
    EndBlock,
}

impl Translator<'_> {
    fn run(&mut self, start: u64, fetch: &mut Fetch<'_>) {
        if let Some(version) = self.options.min_version {
            self.check_version(start, version);
        }
        self.enter_watched_function(start);
        self.follow_from(start, MAX_INSTRUCTIONS, fetch);
        self.write_side_exits(fetch);
    }

    /// Translates up to `most` instructions from `start`, or to the end of the block.
    fn follow_from(&mut self, start: u64, most: usize, fetch: &mut Fetch<'_>) {
        let mut ip = start;
        for _ in 0..most {
            if self.is_long() || self.begins_watched_function(ip) {
                return self.leave(ip, ip, false);
            }
            self.written += 1;
            let mut bytes = [0; MAX_LEN];
            let len = fetch(ip, &mut bytes);
            let mut decoder =
                Decoder::with_ip(64, bytes.get(..len).unwrap_or_default(), ip, DecoderOptions::NONE);
            let instruction = decoder.decode();
            let offsets = decoder.get_constant_offsets(&instruction);
            let bytes = bytes.get(..instruction.len()).unwrap_or_default();
            if instruction.is_invalid() {
                return self.native(ip);
            }
            self.block.source.add(ip, bytes);
            let original = SourceInstruction {
                ip,
                bytes,
                instruction,
                offsets,
            };
            match self.instruction(&original) {
                Flow::ContinueAt(next) => ip = next,
                Flow::EndBlock => return,
            }
        }
        self.leave(ip, ip, false);
    }

    /// Records the state at the end of the code written so far.
    fn record(&mut self, ip: u64, state: InstructionState) {
        if !self.options.entries {
            return;
        }
        self.block.entries.push(TranslationEntry {
            offset: self.out.len() as u32,
            ip,
            state,
            outcomes: self.outcomes,
            logged_ip: self.logged_ip,
            staged: self.staged,
            unstaged: self.unstaged,
        });
    }

    /// Returns the number of side exits that are not written yet.
    fn open_exits(&self) -> usize {
        self.side_exits.len().saturating_sub(self.exits_written)
    }

    fn before(&mut self, ip: u64, spilled: SpilledRegisters) {
        let outcomes = self.outcomes;
        let state = match self.pending_call {
            None => InstructionState::Before(spilled),
            Some((_, next)) => InstructionState::Done {
                spilled,
                event: Some(LogEvent::Call { outcomes, next }),
                next: NextIp::At(ip),
            },
        };
        self.record(ip, state);
    }

    /// Logs the call that led to `at`, if it is pending.
    fn log_pending_call(&mut self, at: u64) {
        if let Some((ip, next)) = self.pending_call.take() {
            self.log_call(ip, next, at);
        }
    }

    fn instruction(&mut self, original: &SourceInstruction<'_>) -> Flow {
        let ip = original.ip;
        let instruction = &original.instruction;
        // A call to another module goes through an indirect jump (PLT). One event logs both.
        let leads_on = matches!(Cofi::of(instruction), Cofi::IndirectJump)
            || instruction.mnemonic() == Mnemonic::Endbr64;
        if !leads_on {
            self.log_pending_call(ip);
        }
        self.before(ip, SpilledRegisters::NONE);
        if needs_gs(instruction) || matches!(instruction.mnemonic(), Mnemonic::Xbegin) {
            self.native(ip);
            return Flow::EndBlock;
        }
        if matches!(instruction.mnemonic(), Mnemonic::Popf | Mnemonic::Popfq) {
            self.flush_values_before(ip);
            self.check_popped_trap_flag(ip);
        }
        if let Some(place) = x87_pointer(instruction) {
            if self.options.values {
                self.native(ip);
                return Flow::EndBlock;
            }
            return self.store_x87_pointer(original, place);
        }
        match Cofi::of(instruction) {
            Cofi::Sequential if self.options.values => self.copy_with_values(original),
            Cofi::Sequential => self.copy(original),
            Cofi::Jump { target } => self.follow(ip, target.0),
            Cofi::Call { target } => {
                self.push(original.next());
                if self.options.calls && target.0 != original.next() {
                    self.pending_call = Some((ip, original.next()));
                }
                self.block.successors.push(original.next());
                self.follow(ip, target.0)
            }
            Cofi::Conditional { target } => self.branch(original, target.0),
            Cofi::Return => self.near_return(original),
            Cofi::IndirectJump | Cofi::IndirectCall => self.indirect(original),
            Cofi::FarTransfer if instruction.mnemonic() == Mnemonic::Syscall => {
                self.system_call(ip, original.next());
                Flow::EndBlock
            }
            Cofi::FarTransfer => {
                self.native(ip);
                Flow::EndBlock
            }
        }
    }

    /// Ends the block with an instruction that must execute natively.
    fn native(&mut self, ip: u64) {
        self.log_pending_call(ip);
        self.flush_values_before(ip);
        self.before(ip, SpilledRegisters::NONE);
        let outcomes = self.outcomes;
        self.trap(BlockTrap::Native { ip, outcomes });
    }

    fn trap(&mut self, trap: BlockTrap) {
        self.block.traps.push((self.out.len() as u32, trap));
        self.out.padded_trap();
    }

    /// Copies an instruction that does not branch.
    fn copy(&mut self, original: &SourceInstruction<'_>) -> Flow {
        if self.relocate(original.bytes, original) {
            Flow::ContinueAt(original.next())
        } else {
            self.native(original.ip);
            Flow::EndBlock
        }
    }

    /// Writes `bytes`, a form of the instruction whose RIP-relative displacement is at the same
    /// distance from its end, and adjusts the displacement. Returns `false` and writes nothing if
    /// the operand is out of reach.
    fn relocate(&mut self, bytes: &[u8], original: &SourceInstruction<'_>) -> bool {
        let start = self.out.len();
        self.out.bytes(bytes);
        if !original.instruction.is_ip_rel_memory_operand() {
            return true;
        }
        let end = self.out.len();
        let from_end = original.bytes.len() - original.offsets.displacement_offset();
        let distance = original
            .instruction
            .memory_displacement64()
            .wrapping_sub(self.at + end as u64) as i64;
        let place = end
            .checked_sub(from_end)
            .and_then(|at| self.out.code.get_mut(at..at + 4));
        if let (Ok(distance), Some(place)) = (i32::try_from(distance), place)
            && original.offsets.displacement_size() == 4
            && original.instruction.memory_base() != Register::EIP
        {
            place.copy_from_slice(&distance.to_le_bytes());
            self.out.note_field(end - from_end, AddressField::Distance);
            return true;
        }
        self.out.truncate(start);
        self.block.depends_on_place = true;
        false
    }

    /// Continues at `target` in this block, or ends the block if it already contains `target`. On
    /// side exits a few pending outcomes end the block soon enough.
    fn follow(&mut self, ip: u64, target: u64) -> Flow {
        if self.depth == 0 && self.block.source.has(target) {
            self.leave(ip, target, true);
            return Flow::EndBlock;
        }
        Flow::ContinueAt(target)
    }

    /// Ends the block after the instruction at `ip`. `again` says that the block already contains
    /// `target`.
    ///
    /// A loop without packets must log an event nevertheless: from packets alone, a decoder cannot
    /// know the number of iterations.
    fn leave(&mut self, ip: u64, target: u64, again: bool) {
        self.log_pending_call(target);
        if self.outcomes != NO_OUTCOMES {
            self.log_outcomes(ip, NextIp::At(target), self.outcomes);
        } else if again && self.packetless {
            self.log_loop_marker(ip, target);
        }
        self.link(ip, target);
    }

    fn link(&mut self, ip: u64, target: u64) {
        let done = |spilled| InstructionState::Done {
            spilled,
            event: None,
            next: NextIp::At(target),
        };
        self.flush_values(SpilledRegisters::NONE, &|translator, spilled| {
            translator.record(ip, done(spilled));
        });
        self.record(ip, done(SpilledRegisters::NONE));
        let site = self.out.jump();
        self.links.push((site, target));
        self.block.successors.push(target);
    }

    /// Pushes the return address.
    fn push(&mut self, next: u64) {
        self.out.bytes(&[0xff, 0x35]);
        let at = self.out.reserve_rel32();
        self.constants.push((at, next));
    }

    fn near_return(&mut self, original: &SourceInstruction<'_>) -> Flow {
        let ip = original.ip;
        if original.instruction.code() != Code::Retnq && original.instruction.code() != Code::Retnq_imm16 {
            self.native(ip);
            return Flow::EndBlock;
        }
        let arguments = if original.instruction.op_count() > 0 {
            u32::from(original.instruction.immediate16())
        } else {
            0
        };
        self.make_room_for_target(ip);
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        self.out.return_address();
        self.before(ip, SpilledRegisters::RAX);
        let loaded = self.stage_target();
        // RAX holds the target.
        let (calls, target) = (self.options.calls, 0);
        let event = |outcomes| match calls {
            true => LogEvent::Return { outcomes, target },
            false => LogEvent::Target { outcomes, target },
        };
        if self.watched.is_some() {
            self.return_from_allocator(original, 8 + arguments, event, loaded);
            return Flow::EndBlock;
        }
        self.out.pop(8 + arguments);
        self.go_to_rax(ip, event(self.outcomes), loaded);
        Flow::EndBlock
    }

    fn indirect(&mut self, original: &SourceInstruction<'_>) -> Flow {
        let ip = original.ip;
        self.make_room_for_target(ip);
        // RAX is spilled first.
        let before = self.out.len();
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        let load = load_operand(original);
        if !load.is_some_and(|bytes| self.relocate(&bytes, original)) {
            self.out.truncate(before);
            self.native(ip);
            return Flow::EndBlock;
        }
        self.before(ip, SpilledRegisters::RAX);
        let is_loaded = original.instruction.op0_kind() == OpKind::Memory;
        let loaded = is_loaded.then(|| self.stage_target()).flatten();
        let (outcomes, target) = (self.outcomes, 0);
        let mut event = LogEvent::Target { outcomes, target };
        if let Some((_, next)) = self.pending_call.take() {
            event = LogEvent::IndirectCall {
                outcomes,
                next,
                target,
            };
        }
        if Cofi::of(&original.instruction).is_call() {
            let next = original.next();
            self.push(next);
            self.block.successors.push(next);
            if self.options.calls {
                event = LogEvent::IndirectCall {
                    outcomes,
                    next,
                    target,
                };
            }
        }
        self.go_to_rax(ip, event, loaded);
        Flow::EndBlock
    }

    fn finish(mut self) -> Block {
        self.staged = Staged::default();
        while !self.out.len().is_multiple_of(8) {
            self.out.trap();
        }
        for (rel32, value) in std::mem::take(&mut self.constants) {
            let here = self.out.len();
            self.out.patch_rel32(rel32, here);
            self.out.note_field(here, AddressField::Word);
            self.out.bytes(&value.to_le_bytes());
        }
        for (site, target) in std::mem::take(&mut self.links) {
            let here = self.out.len();
            self.out.patch_rel32(site, here);
            self.record(target, InstructionState::Before(SpilledRegisters::NONE));
            self.trap(BlockTrap::Exit {
                site: site as u32,
                target,
            });
        }
        self.block.code = self.out.code;
        self.block.fields = self.out.fields;
        self.block
    }
}

/// Returns whether the instruction uses GS, which points to the region while the program runs in
/// the cache.
fn needs_gs(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        || (instruction.op_count() > 0 && instruction.op0_register() == Register::GS)
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Rdgsbase | Mnemonic::Wrgsbase | Mnemonic::Swapgs | Mnemonic::Lgs
        )
}

/// Builds `mov rax, OPERAND` for an indirect jump or call. It keeps the operand bytes and changes
/// the opcode. Returns `None` for forms that compilers do not generate.
fn load_operand(original: &SourceInstruction<'_>) -> Option<Vec<u8>> {
    let opcode = original.bytes.iter().position(|byte| *byte == 0xff)?;
    let (prefixes, rest) = original.bytes.split_at(opcode);
    let (rex, legacy) = match prefixes.split_last() {
        Some((rex @ 0x40..=0x4f, legacy)) => (*rex, legacy),
        _ => (0x40, prefixes),
    };
    // BND and NOTRACK prefixes do not affect a load. Other prefixes would change it.
    let mut bytes: Vec<u8> = legacy
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, 0xf2 | 0x3e))
        .collect();
    if bytes
        .iter()
        .any(|byte| !matches!(byte, 0x2e | 0x26 | 0x64 | 0x67))
    {
        return None;
    }
    let (modrm, operand) = rest.get(1..)?.split_first()?;
    // Set REX.W and clear REX.R, because the destination is RAX.
    bytes.push((rex | 8) & !4);
    bytes.push(0x8b);
    bytes.push(modrm & !0x38);
    bytes.extend_from_slice(operand);
    Some(bytes)
}

#[cfg(test)]
mod tests;
