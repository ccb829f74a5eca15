//! The stubs that log values: loaded bytes, and the results of instructions without a model.
//!
//! A value first goes to the stage, mostly by one store. Where the block ends, a stub copies the
//! stage to the log and advances its pointer. A stub that is interrupted has changed nothing: the
//! values on the stage follow from its address.

use super::value_plan::{self, ValuePlan, store_of, words};
use super::{BlockTrap, Flow, InstructionState, NextIp, SourceInstruction, SpilledRegisters, Translator};
use crate::translate::address_field::AddressField;
use crate::translate::assembler::Scratch;
use crate::translate::layout;
use crate::translate::staged::{MOST_STAGED, Staged, Unstaged};
use backtrail_semantics::Registers;
use iced_x86::{Code, Encoder, EncodingKind, Instruction, MemoryOperand, Register};
use std::arch::is_x86_feature_detected;

/// The code size from which a block with values ends, in bytes.
const MOST_CODE: usize = 8 << 10;
/// The most code of a side exit, which copies a whole stage.
const SIDE_EXIT: usize = 512;
/// The bytes of a vector register in the log.
const VECTOR: u32 = 64;

/// The registers that system calls change: RAX, RCX and R11.
const SYSCALL_RESULTS: [Register; 3] = [Register::RAX, Register::RCX, Register::R11];

impl Translator<'_> {
    /// Returns whether the block must end soon, so that it fits in the room of a block.
    pub(super) fn is_long(&self) -> bool {
        self.options.values && self.out.len() + SIDE_EXIT * self.open_exits() > MOST_CODE
    }

    /// Copies an instruction that does not branch, and logs its values.
    pub(super) fn copy_with_values(&mut self, original: &SourceInstruction<'_>) -> Flow {
        let plan = value_plan::plan(&original.instruction);
        let needed = match &plan {
            ValuePlan::Nothing | ValuePlan::Predicted | ValuePlan::Native => 0,
            ValuePlan::Before { size, .. } | ValuePlan::Masked { size, .. } => words(*size),
            ValuePlan::After { registers, size } => words(*size) * count(registers),
            ValuePlan::Results {
                store,
                general,
                vectors,
            } => {
                let stored = store.map_or(0, |(_, size)| words(size));
                stored + general.count_ones() + words(VECTOR) * vectors.count_ones()
            }
        };
        if self.staged.count() + needed > MOST_STAGED {
            self.flush_values_before(original.ip);
        }
        let (start, entries, staged) = (self.out.len(), self.block.entries.len(), self.staged);
        if needed <= MOST_STAGED && self.write_plan(&plan, original).is_some() {
            return Flow::ContinueAt(original.next());
        }
        self.out.truncate(start);
        self.block.entries.truncate(entries);
        self.block.traps.retain(|(offset, _)| (*offset as usize) < start);
        self.staged = staged;
        if matches!(plan, ValuePlan::Masked { .. })
            && self.write_plan(&ValuePlan::Predicted, original).is_some()
        {
            return Flow::ContinueAt(original.next());
        }
        self.native(original.ip);
        Flow::EndBlock
    }

    /// Writes an instruction and the stubs for its values. `None`: it cannot be written.
    fn write_plan(&mut self, plan: &ValuePlan, original: &SourceInstruction<'_>) -> Option<()> {
        let ip = original.ip;
        let copied = |translator: &mut Self| translator.relocate(original.bytes, original).then_some(());
        match plan {
            ValuePlan::Native => None,
            ValuePlan::Nothing => copied(self),
            ValuePlan::Before { place, size } => {
                let mut staged = self.staged;
                self.stage_memory(place, *size, &mut staged, &|translator, spilled| {
                    translator.before(ip, spilled);
                })?;
                copied(self)?;
                self.staged = staged;
                Some(())
            }
            ValuePlan::Masked {
                place,
                size,
                mask,
                lanes,
            } => {
                let mut staged = self.staged;
                self.stage_masked(ip, place, *size, (*mask, *lanes), &mut staged)?;
                copied(self)?;
                self.staged = staged;
                Some(())
            }
            ValuePlan::After { registers, size } => {
                copied(self)?;
                let (registers, size) = (*registers, *size);
                self.unstaged = Unstaged::Registers { registers, size };
                self.executed(original, SpilledRegisters::NONE);
                let encoding = original.instruction.encoding();
                let mut staged = self.staged;
                for register in registers
                    .into_iter()
                    .filter(|register| *register != Register::None)
                {
                    self.stage_register(register, size, encoding, &mut staged)?;
                }
                (self.staged, self.unstaged) = (staged, Unstaged::Nothing);
                Some(())
            }
            ValuePlan::Results {
                store,
                general,
                vectors,
            } => {
                copied(self)?;
                self.unstaged = Unstaged::Lost;
                self.executed(original, SpilledRegisters::NONE);
                let mut staged = self.staged;
                let done = self.stage_results(original, *store, *general, *vectors, &mut staged);
                self.unstaged = Unstaged::Nothing;
                done?;
                self.staged = staged;
                Some(())
            }
            ValuePlan::Predicted => {
                self.flush_values_before(ip);
                self.before(ip, SpilledRegisters::NONE);
                self.trap(BlockTrap::Predicted { ip });
                self.unstaged = Unstaged::Lost;
                self.before(ip, SpilledRegisters::NONE);
                let done = copied(self);
                self.unstaged = Unstaged::Nothing;
                done
            }
        }
    }

    /// Records that an instruction has run.
    fn executed(&mut self, original: &SourceInstruction<'_>, spilled: SpilledRegisters) {
        self.record(
            original.ip,
            InstructionState::Done {
                spilled,
                event: None,
                next: NextIp::At(original.next()),
            },
        );
    }

    fn stage_results(
        &mut self,
        original: &SourceInstruction<'_>,
        store: Option<(MemoryOperand, u32)>,
        general: u16,
        vectors: u32,
        staged: &mut Staged,
    ) -> Option<()> {
        if let Some((place, size)) = store {
            self.stage_memory(&place, size, staged, &|translator, spilled| {
                translator.executed(original, spilled);
            })?;
        }
        for number in (0..16).filter(|number| general >> number & 1 != 0) {
            self.stage_register(Register::RAX + number, 8, EncodingKind::Legacy, staged)?;
        }
        for number in (0..32).filter(|number| vectors >> number & 1 != 0) {
            self.stage_vector(number, staged)?;
        }
        Some(())
    }

    /// Stores all bytes of a vector register on the stage. Without AVX-512, the upper half is zero.
    fn stage_vector(&mut self, number: u32, staged: &mut Staged) -> Option<()> {
        if is_x86_feature_detected!("avx512f") {
            return self.stage_register(Register::ZMM0 + number, VECTOR, EncodingKind::EVEX, staged);
        }
        if !is_x86_feature_detected!("avx") || number >= 16 {
            return None;
        }
        self.stage_register(Register::YMM0 + number, VECTOR / 2, EncodingKind::VEX, staged)?;
        for _ in 0..VECTOR / 2 / 8 {
            let slot = staged.push(8);
            self.out.set_slot(slot, 0);
        }
        Some(())
    }

    /// Stores the low `size` bytes of a register on the stage.
    fn stage_register(
        &mut self,
        register: Register,
        size: u32,
        encoding: EncodingKind,
        staged: &mut Staged,
    ) -> Option<()> {
        let slot = staged.push(size.min(8));
        for _ in 1..words(size) {
            staged.push(8);
        }
        let store = store_of(register, size, encoding, on_stage(slot))?;
        self.encode(&store)
    }

    /// Copies bytes of memory to the stage. `state` records the state with spilled registers.
    fn stage_memory(
        &mut self,
        place: &MemoryOperand,
        size: u32,
        staged: &mut Staged,
        state: &dyn Fn(&mut Self, SpilledRegisters),
    ) -> Option<()> {
        let uses = |register| place.base == register || place.index == register;
        let (scratch, first, spilled) = if uses(Register::RAX) {
            match uses(Register::RCX) {
                true => (Scratch::Rdx, Register::RDX, SpilledRegisters::RDX),
                false => (Scratch::Rcx, Register::RCX, SpilledRegisters::RCX),
            }
        } else {
            (Scratch::Rax, Register::RAX, SpilledRegisters::RAX)
        };
        state(self, SpilledRegisters::NONE);
        self.out.store(scratch, scratch.slot());
        state(self, spilled);
        let number = u32::try_from(first.number()).ok()?;
        let mut at = 0;
        while at < size {
            let (part, part_size, load) = match size - at {
                8.. => (Register::RAX + number, 8, Code::Mov_r64_rm64),
                4..8 => (Register::EAX + number, 4, Code::Mov_r32_rm32),
                2..4 => (Register::AX + number, 2, Code::Mov_r16_rm16),
                _ => (Register::AL + number, 1, Code::Mov_r8_rm8),
            };
            let mut from = *place;
            from.displacement = from.displacement.wrapping_add(i64::from(at));
            // A displacement of the size of addresses always fits.
            from.displ_size = 8;
            let load = Instruction::with2(load, part, from).ok()?;
            self.encode(&load)?;
            let slot = staged.push(part_size);
            let store = store_of(part, part_size, EncodingKind::Legacy, on_stage(slot))?;
            self.encode(&store)?;
            at += part_size;
        }
        self.out.load(scratch, scratch.slot());
        state(self, SpilledRegisters::NONE);
        Some(())
    }

    /// Copies all bytes of an operand under a mask to the stage. This is possible if a lane is
    /// enabled and the operand is in one page: then the instruction loads from this page too. In
    /// the other cases the recorder reads the bytes of the enabled lanes. No flag changes.
    fn stage_masked(
        &mut self,
        ip: u64,
        place: &MemoryOperand,
        size: u32,
        (mask, lanes): (Register, u32),
        staged: &mut Staged,
    ) -> Option<()> {
        let has_instructions = is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        // `lea` does not add the base of a segment.
        if !has_instructions || matches!(place.segment_prefix, Register::FS | Register::GS) {
            return None;
        }
        let slot = self.staged.next_slot();
        self.before(ip, SpilledRegisters::NONE);
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::RCX);
        let (move_mask, to) = match lanes {
            8 => (Code::VEX_Kmovb_r32_kr, Register::ECX),
            16 => (Code::VEX_Kmovw_r32_kr, Register::ECX),
            32 => (Code::VEX_Kmovd_r32_kr, Register::ECX),
            _ => (Code::VEX_Kmovq_r64_kr, Register::RCX),
        };
        self.encode(&Instruction::with2(move_mask, to, mask).ok()?)?;
        let no_lane = self.out.jump_if_rcx_is_zero();
        if place.base == Register::RCX || place.index == Register::RCX {
            self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        }
        let mut end = *place;
        end.displacement = end.displacement.wrapping_add(i64::from(size - 1));
        end.displ_size = 8;
        self.encode(&Instruction::with2(Code::Lea_r64_m, Register::RCX, end).ok()?)?;
        self.out.page_offset_of_rcx(size.ilog2());
        let other_page = self.out.jump_if_rcx_is_zero();
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::NONE);
        let fast = self.out.near_jump();
        for jump in [no_lane, other_page] {
            self.out.patch_rel8(jump)?;
        }
        self.before(ip, SpilledRegisters::RCX);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::NONE);
        self.trap(BlockTrap::Masked { ip, slot });
        let done = self.out.near_jump();
        self.out.patch_rel32(fast, self.out.len());
        self.stage_memory(place, size, staged, &|translator, spilled| {
            translator.before(ip, spilled);
        })?;
        self.out.patch_rel32(done, self.out.len());
        Some(())
    }

    /// Stores the loaded target of a branch, which is in RAX, on the stage. Returns what is
    /// there after the branch.
    pub(super) fn stage_target(&mut self) -> Option<Staged> {
        if !self.options.values {
            return None;
        }
        let mut staged = self.staged;
        let slot = staged.push(8);
        self.out.store(Scratch::Rax, slot);
        Some(staged)
    }

    /// Makes room on the stage for a target.
    pub(super) fn make_room_for_target(&mut self, ip: u64) {
        if self.options.values && self.staged.count() >= MOST_STAGED {
            self.flush_values_before(ip);
        }
    }

    /// Stores the results of a system call on the stage, and returns what is there. RAX and RDX
    /// are spilled.
    pub(super) fn stage_call_results(&mut self) -> Staged {
        let mut staged = self.staged;
        if !self.options.values {
            return staged;
        }
        let has_flags = Registers::of(&Instruction::with(Code::Syscall)).written.flags != 0;
        let slots = SYSCALL_RESULTS.map(|_| staged.push(8));
        let flags = has_flags.then(|| staged.push(2));
        let legacy = EncodingKind::Legacy;
        // The encodings of these stores are always possible.
        for (register, slot) in SYSCALL_RESULTS.into_iter().zip(slots).skip(1) {
            let store = store_of(register, 8, legacy, on_stage(slot));
            store.and_then(|store| self.encode(&store));
        }
        if let Some(slot) = flags {
            let store = store_of(Register::R11W, 2, legacy, on_stage(slot));
            store.and_then(|store| self.encode(&store));
        }
        self.out.load(Scratch::Rdx, layout::SAVED_RAX);
        self.out.store(Scratch::Rdx, slots[0]);
        for base in [layout::BASES, layout::BASES + 8] {
            self.out.load(Scratch::Rdx, base as u32);
            let slot = staged.push(8);
            self.out.store(Scratch::Rdx, slot);
        }
        staged
    }

    pub(super) fn flush_values_before(&mut self, ip: u64) {
        self.flush_values(SpilledRegisters::NONE, &|translator, spilled| {
            translator.before(ip, spilled);
        });
    }

    /// Copies the stage to the log. RAX stays as it is. `state` records the state with spilled
    /// registers.
    pub(super) fn flush_values(
        &mut self,
        spilled: SpilledRegisters,
        state: &dyn Fn(&mut Self, SpilledRegisters),
    ) {
        if self.staged.is_empty() {
            return;
        }
        let with_rcx = spilled.and(SpilledRegisters::RCX);
        let with_rdx = with_rcx.and(SpilledRegisters::RDX);
        state(self, spilled);
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        state(self, with_rcx);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        state(self, with_rdx);
        self.out.load(Scratch::Rcx, layout::VALUE_POINTER);
        let mut at = 0;
        for (slot, size) in self.staged.values() {
            self.out.copy_value(slot, size as u8, at);
            at += size;
        }
        self.out.advance_values(at);
        self.out.store(Scratch::Rcx, layout::VALUE_POINTER);
        self.staged = Staged::default();
        state(self, with_rdx);
        self.out.load(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        state(self, spilled);
    }

    fn encode(&mut self, instruction: &Instruction) -> Option<()> {
        let mut encoder = Encoder::new(64);
        let here = self.at + self.out.len() as u64;
        encoder.encode(instruction, here).ok()?;
        if instruction.is_ip_rel_memory_operand() {
            let offsets = encoder.get_constant_offsets();
            if offsets.displacement_size() != 4 {
                return None;
            }
            let at = self.out.len() + offsets.displacement_offset();
            self.out.note_field(at, AddressField::Distance);
        }
        self.out.bytes(&encoder.take_buffer());
        Some(())
    }
}

/// Returns the number of registers.
fn count(registers: &[Register; 2]) -> u32 {
    1 + u32::from(registers[1] != Register::None)
}

/// Returns the operand of a slot on the stage.
fn on_stage(slot: u32) -> MemoryOperand {
    MemoryOperand::new(
        Register::None,
        Register::None,
        1,
        i64::from(slot),
        8,
        false,
        Register::GS,
    )
}
