//! The values that an instruction logs in the code cache, and their places.
//!
//! The model of the instruction says what it loads: it runs once on registers with different
//! values, so that each address belongs to one operand. Instructions for which this is not enough
//! stop the program, and the recorder reads their loads.

use crate::translate::staged::MOST_STAGED;
use backtrail_semantics::{Effect, LogWriter, Registers, State, flag};
use iced_x86::{
    Code, EncodingKind, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic, OpAccess, OpKind,
    Register,
};

/// The values that an instruction logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValuePlan {
    /// None.
    Nothing,
    /// The bytes of an operand, before the instruction.
    Before { place: MemoryOperand, size: u32 },
    /// The low `size` bytes of each register, after the instruction.
    After { registers: [Register; 2], size: u32 },
    /// The bytes of an operand, and then registers, after an instruction without a model.
    Results {
        store: Option<(MemoryOperand, u32)>,
        general: u16,
        vectors: u32,
    },
    /// All bytes of an operand of which the lanes of a mask register are loaded, before the
    /// instruction. Bytes of other lanes may have any value.
    Masked {
        place: MemoryOperand,
        size: u32,
        mask: Register,
        lanes: u32,
    },
    /// The loaded bytes, before the instruction. The recorder reads them: their number or place
    /// depends on a count, a mask or a condition.
    Predicted,
    /// The instruction is stepped natively.
    Native,
}

/// Returns the values that an instruction logs. It does not branch.
pub(super) fn plan(instruction: &Instruction) -> ValuePlan {
    let effect = Effect::of(instruction);
    let found = match &effect {
        Effect::Modeled(_) if is_repeated(instruction) => Some(match instruction.mnemonic() {
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => ValuePlan::Nothing,
            _ => ValuePlan::Predicted,
        }),
        Effect::Modeled(_) => plan_of_loads(instruction, &effect),
        Effect::Logged(_) => plan_of_results(instruction, &effect),
    };
    found.unwrap_or(ValuePlan::Native)
}

fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Returns registers whose values give each operand another address.
fn probe(flags: u64, masks: u64) -> State {
    let mut state = State {
        flags,
        masks: [masks; 8],
        bases: [0x7100_0000_0000, 0x7200_0000_0000],
        ..State::default()
    };
    for (number, register) in (1_u64..).zip(&mut state.general) {
        *register = number * 0x10_1234_5000;
    }
    state
}

/// Returns the memory that a model loads, or that an instruction without a model stores: its
/// address and size in bytes. `None`: there are several ranges, or the model does not say.
fn accessed(effect: &Effect, flags: u64) -> Option<Option<(u64, u32)>> {
    accessed_in(effect, probe(flags, 0))
}

fn accessed_in(effect: &Effect, mut state: State) -> Option<Option<(u64, u32)>> {
    let mut all: Option<(u64, u32)> = None;
    let mut is_one = true;
    let mut note = |address: u64, bytes: &mut [u8]| {
        bytes.fill(1);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match &mut all {
            None => all = Some((address, len)),
            Some((start, size)) if start.wrapping_add(u64::from(*size)) == address => {
                *size = size.saturating_add(len);
            }
            Some(_) => is_one = false,
        }
        true
    };
    let prediction = effect.predict(&state, &mut note);
    if let Effect::Logged(_) = effect {
        let after = state.clone();
        let mut log = LogWriter::default();
        let done = effect.confirm(prediction, &mut state, &after, &mut note, &mut log);
        done.ok()?;
    }
    is_one.then_some(all)
}

fn plan_of_loads(instruction: &Instruction, effect: &Effect) -> Option<ValuePlan> {
    // A load under a mask depends on more than addresses.
    let mut factory = InstructionInfoFactory::new();
    let reads = |access: OpAccess| {
        matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let info = factory.info(instruction);
    let mut listed = info.used_memory().iter().filter(|used| reads(used.access()));
    let is_conditional = info
        .used_memory()
        .iter()
        .any(|used| used.access() == OpAccess::CondRead);
    let listed_size: usize = listed.clone().map(|used| used.memory_size().size()).sum();
    let has_mask = instruction.op_mask() != Register::None;
    if listed.any(|_| has_mask) || is_conditional {
        return Some(plan_of_masked(instruction, effect).unwrap_or(ValuePlan::Predicted));
    }
    let access = accessed(effect, 0)?;
    if access != accessed(effect, flag::STATUS)? {
        return None;
    }
    let Some((address, size)) = access else {
        // The library must agree that nothing is loaded.
        return (listed_size == 0).then_some(ValuePlan::Nothing);
    };
    if listed_size != size as usize && !instruction.is_broadcast() {
        return None;
    }
    if let Some(registers) = destination(instruction, size) {
        let size = size / if registers[1] == Register::None { 1 } else { 2 };
        return Some(ValuePlan::After { registers, size });
    }
    let place = place_at(instruction, address)?;
    Some(ValuePlan::Before { place, size })
}

/// Returns the plan of a load of whole lanes under a mask. `None`: it is another instruction.
fn plan_of_masked(instruction: &Instruction, effect: &Effect) -> Option<ValuePlan> {
    let (mask, memory) = (instruction.op_mask(), instruction.memory_size());
    if mask == Register::None || instruction.is_broadcast() {
        return None;
    }
    let size = u32::try_from(memory.size()).ok()?;
    let lane = u32::try_from(memory.element_size()).ok()?;
    let lanes = size.checked_div(lane)?;
    if !matches!(size, 16 | 32 | 64) || !matches!(lanes, 8 | 16 | 32 | 64) {
        return None;
    }
    // The model loads all lanes, only the first one, and only the last one.
    let (all, last) = (u64::MAX >> (64 - lanes), 1 << (lanes - 1));
    let loaded = |masks| accessed_in(effect, probe(0, masks))?;
    let (address, whole) = loaded(all)?;
    let ends = [(address, lane), (address + u64::from(size - lane), lane)];
    if whole != size || [loaded(1)?, loaded(last)?] != ends {
        return None;
    }
    let place = place_at(instruction, address)?;
    Some(ValuePlan::Masked {
        place,
        size,
        mask,
        lanes,
    })
}

/// Returns the operand that is at an address in the probed registers.
fn place_at(instruction: &Instruction, address: u64) -> Option<MemoryOperand> {
    let is_explicit = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
    let place = if is_explicit {
        MemoryOperand::new(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64().cast_signed(),
            instruction.memory_displ_size(),
            false,
            instruction.segment_prefix(),
        )
    } else {
        MemoryOperand::with_base(match instruction.mnemonic() {
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => Register::RSI,
            Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq => Register::RDI,
            _ => return None,
        })
    };
    let state = probe(0, 0);
    let value = |register: Register| match register {
        Register::None | Register::DS | Register::ES | Register::SS | Register::CS => Some(0),
        Register::FS => Some(state.bases[0]),
        register if register.is_gpr64() => state.general.get(register.number()).copied(),
        _ => None,
    };
    let base = match place.base {
        Register::RIP => 0,
        base => value(base)?,
    };
    let sum = base
        .wrapping_add(value(place.index)?.wrapping_mul(u64::from(place.scale)))
        .wrapping_add(place.displacement.cast_unsigned())
        .wrapping_add(value(place.segment_prefix)?);
    (sum == address).then_some(place)
}

/// Returns the registers whose low bytes are the loaded `size` bytes after the instruction.
fn destination(instruction: &Instruction, size: u32) -> Option<[Register; 2]> {
    let register = instruction.op0_register();
    let to_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
    let one = |register: Option<Register>| register.map(|register| [register, Register::None]);
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd
            if to_register && register.is_gpr() =>
        {
            one(sized(register, size))
        }
        Mnemonic::Pop if to_register && register.is_gpr() && register.full_register() != Register::RSP => {
            one(sized(register, size))
        }
        Mnemonic::Leave => one(sized(Register::RBP, size)),
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => {
            one(sized(Register::RAX, size))
        }
        Mnemonic::Xchg | Mnemonic::Xadd if instruction.op0_kind() == OpKind::Memory => {
            one(sized(instruction.op1_register(), size))
        }
        Mnemonic::Cmpxchg => one(sized(Register::RAX, size)),
        Mnemonic::Cmpxchg8b => Some([Register::EAX, Register::EDX]),
        Mnemonic::Cmpxchg16b => Some([Register::RAX, Register::RDX]),
        Mnemonic::Movups
        | Mnemonic::Movaps
        | Mnemonic::Movupd
        | Mnemonic::Movapd
        | Mnemonic::Movdqu
        | Mnemonic::Movdqa
        | Mnemonic::Lddqu
        | Mnemonic::Movd
        | Mnemonic::Movq
        | Mnemonic::Movss
        | Mnemonic::Movsd
        | Mnemonic::Vmovups
        | Mnemonic::Vmovaps
        | Mnemonic::Vmovupd
        | Mnemonic::Vmovapd
        | Mnemonic::Vmovdqu
        | Mnemonic::Vmovdqa
        | Mnemonic::Vmovd
        | Mnemonic::Vmovq
        | Mnemonic::Vmovss
        | Mnemonic::Vmovsd
        | Mnemonic::Vmovdqu8
        | Mnemonic::Vmovdqu16
        | Mnemonic::Vmovdqu32
        | Mnemonic::Vmovdqu64
        | Mnemonic::Vmovdqa32
        | Mnemonic::Vmovdqa64
            if to_register && register.is_vector_register() =>
        {
            let number = u32::try_from(register.number()).ok()?;
            one(match size {
                64 => Some(Register::ZMM0 + number),
                32 => Some(Register::YMM0 + number),
                4 | 8 | 16 => Some(Register::XMM0 + number),
                _ => None,
            })
        }
        _ => None,
    }
}

/// Returns the low `size` bytes of a general register. `None`: it has no such part.
fn sized(register: Register, size: u32) -> Option<Register> {
    if register.size() == size as usize {
        return Some(register);
    }
    let number = u32::try_from(register.full_register().number()).ok()?;
    Some(match size {
        1 => *BYTES.get(number as usize)?,
        2 => Register::AX + number,
        4 => Register::EAX + number,
        8 => Register::RAX + number,
        _ => return None,
    })
}

/// The low bytes of the general registers by their numbers.
const BYTES: [Register; 16] = [
    Register::AL,
    Register::CL,
    Register::DL,
    Register::BL,
    Register::SPL,
    Register::BPL,
    Register::SIL,
    Register::DIL,
    Register::R8L,
    Register::R9L,
    Register::R10L,
    Register::R11L,
    Register::R12L,
    Register::R13L,
    Register::R14L,
    Register::R15L,
];

fn plan_of_results(instruction: &Instruction, effect: &Effect) -> Option<ValuePlan> {
    // These change registers that neither a model nor the log has, or that the recorder tracks.
    if matches!(
        instruction.mnemonic(),
        Mnemonic::Ldmxcsr
            | Mnemonic::Vldmxcsr
            | Mnemonic::Fxrstor
            | Mnemonic::Fxrstor64
            | Mnemonic::Xrstor
            | Mnemonic::Xrstor64
            | Mnemonic::Wrfsbase
    ) {
        return None;
    }
    let written = Registers::of(instruction).written;
    if effect.is_syscall() || written.flags != 0 || written.masks != 0 {
        return None;
    }
    let store = match accessed(effect, 0)? {
        None => None,
        Some((address, size)) => Some((place_at(instruction, address)?, size)),
    };
    // The address must not depend on the results.
    let results = written.general.count_ones() + 8 * written.vectors.count_ones();
    if (store.is_some() && written.general != 0) || results > MOST_STAGED {
        return None;
    }
    if store.is_none() && results == 0 {
        return Some(ValuePlan::Nothing);
    }
    Some(ValuePlan::Results {
        store,
        general: written.general,
        vectors: written.vectors,
    })
}

/// Returns the number of words that a value of `size` bytes takes on the stage.
pub(super) const fn words(size: u32) -> u32 {
    size / 8 + (size % 8).count_ones()
}

/// Returns the instruction that stores the low `size` bytes of a register.
pub(super) fn store_of(
    register: Register,
    size: u32,
    encoding: EncodingKind,
    place: MemoryOperand,
) -> Option<Instruction> {
    let is_legacy = encoding == EncodingKind::Legacy;
    let is_low = register.is_vector_register() && register.number() < 16;
    let code = match size {
        1 => Code::Mov_rm8_r8,
        2 => Code::Mov_rm16_r16,
        4 if register.is_gpr() => Code::Mov_rm32_r32,
        8 if register.is_gpr() => Code::Mov_rm64_r64,
        4 if is_legacy => Code::Movss_xmmm32_xmm,
        8 if is_legacy => Code::Movsd_xmmm64_xmm,
        16 if is_legacy => Code::Movups_xmmm128_xmm,
        4 if is_low => Code::VEX_Vmovss_m32_xmm,
        8 if is_low => Code::VEX_Vmovsd_m64_xmm,
        16 if is_low => Code::VEX_Vmovups_xmmm128_xmm,
        32 if is_low => Code::VEX_Vmovups_ymmm256_ymm,
        4 => Code::EVEX_Vmovss_m32_k1_xmm,
        8 => Code::EVEX_Vmovsd_m64_k1_xmm,
        16 => Code::EVEX_Vmovups_xmmm128_k1z_xmm,
        32 => Code::EVEX_Vmovups_ymmm256_k1z_ymm,
        64 => Code::EVEX_Vmovups_zmmm512_k1z_zmm,
        _ => return None,
    };
    Instruction::with2(code, place, register).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn of(code: &[u8]) -> ValuePlan {
        plan(&Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode())
    }

    #[test]
    fn plain_loads_are_logged_by_their_destination() {
        let after = |register, size| ValuePlan::After {
            registers: [register, Register::None],
            size,
        };
        assert_eq!(
            of(&[0x48, 0x8b, 0x43, 0x08]),
            after(Register::RAX, 8),
            "mov rax, [rbx+8]"
        );
        assert_eq!(
            of(&[0x0f, 0xb6, 0x07]),
            after(Register::AL, 1),
            "movzx eax, byte [rdi]"
        );
        assert_eq!(
            of(&[0x48, 0x63, 0x06]),
            after(Register::EAX, 4),
            "movsxd rax, [rsi]"
        );
        assert_eq!(of(&[0x5b]), after(Register::RBX, 8), "pop rbx");
        assert_eq!(of(&[0xc9]), after(Register::RBP, 8), "leave");
        assert_eq!(
            of(&[0x0f, 0x10, 0x07]),
            after(Register::XMM0, 16),
            "movups xmm0, [rdi]"
        );
        assert_eq!(
            of(&[0xf2, 0x0f, 0x10, 0x0f]),
            after(Register::XMM1, 8),
            "movsd xmm1, [rdi]"
        );
        assert_eq!(
            of(&[0xf0, 0x0f, 0xb1, 0x0f]),
            after(Register::EAX, 4),
            "lock cmpxchg [rdi], ecx"
        );
        assert_eq!(
            of(&[0xf0, 0x48, 0x0f, 0xc7, 0x0f]),
            ValuePlan::After {
                registers: [Register::RAX, Register::RDX],
                size: 8
            },
            "lock cmpxchg16b [rdi]"
        );
    }

    #[test]
    fn other_loads_are_read_before_the_instruction() {
        for (code, size, text) in [
            (&[0x03, 0x07][..], 4, "add eax, [rdi]"),
            (&[0x48, 0x0f, 0x44, 0x07], 8, "cmove rax, [rdi]"),
            (&[0x66, 0x0f, 0x74, 0x07], 16, "pcmpeqb xmm0, [rdi]"),
            (
                &[0x64, 0x48, 0x2b, 0x14, 0x25, 0x28, 0, 0, 0],
                8,
                "sub rdx, fs:[28h]",
            ),
            (&[0xf7, 0x37], 4, "div dword [rdi]"),
            (&[0xa5], 4, "movsd"),
        ] {
            let found = of(code);
            assert!(
                matches!(found, ValuePlan::Before { size: found, .. } if found == size),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn repeated_instructions_end() {
        assert_eq!(of(&[0xf3, 0x48, 0xab]), ValuePlan::Nothing, "rep stosq");
        assert_eq!(of(&[0xf3, 0xa4]), ValuePlan::Predicted, "rep movsb");
        assert_eq!(of(&[0xf2, 0xae]), ValuePlan::Predicted, "repne scasb");
    }

    #[test]
    fn instructions_without_loads_log_nothing() {
        assert_eq!(of(&[0x48, 0x89, 0x07]), ValuePlan::Nothing, "mov [rdi], rax");
        assert_eq!(
            of(&[0x48, 0x8d, 0x47, 0x08]),
            ValuePlan::Nothing,
            "lea rax, [rdi+8]"
        );
        assert_eq!(of(&[0x90]), ValuePlan::Nothing, "nop");
        assert_eq!(of(&[0x0f, 0x18, 0x07]), ValuePlan::Nothing, "prefetchnta [rdi]");
    }

    #[test]
    fn results_without_a_model_are_logged() {
        let found = of(&[0x0f, 0x31]);
        let results = ValuePlan::Results {
            store: None,
            general: 0b101,
            vectors: 0,
        };
        assert_eq!(found, results, "rdtsc");
        assert!(
            matches!(
                of(&[0xdb, 0x3f]),
                ValuePlan::Results {
                    store: Some((_, 10)),
                    ..
                }
            ),
            "fstp tbyte [rdi]"
        );
        assert_eq!(of(&[0xd9, 0x07]), ValuePlan::Nothing, "fld dword [rdi]");
        assert_eq!(of(&[0x0f, 0xae, 0x17]), ValuePlan::Native, "ldmxcsr [rdi]");
        assert_eq!(of(&[0x0f, 0xc7, 0x24, 0x24]), ValuePlan::Native, "xsavec [rsp]");
    }

    #[test]
    fn loads_under_a_mask_are_those_of_their_operand() {
        for (code, expected, text) in [
            (
                &[0x62, 0xf1, 0x7f, 0xc9, 0x6f, 0x07][..],
                (64, Register::K1, 64),
                "vmovdqu8 zmm0 {k1}{z}, [rdi]",
            ),
            (
                &[0x62, 0xf1, 0x7f, 0x0a, 0x6f, 0x07],
                (16, Register::K2, 16),
                "vmovdqu8 xmm0 {k2}, [rdi]",
            ),
            (
                &[0x62, 0xf3, 0x7d, 0x21, 0x3f, 0x07, 0x04],
                (32, Register::K1, 32),
                "vpcmpneqb k0 {k1}, ymm16, [rdi]",
            ),
            (
                &[0x62, 0xf3, 0x75, 0x22, 0x1f, 0x0e, 0x00],
                (32, Register::K2, 8),
                "vpcmpeqd k1 {k2}, ymm17, [rsi]",
            ),
        ] {
            let found = of(code);
            let ValuePlan::Masked {
                size, mask, lanes, ..
            } = found
            else {
                panic!("{text}: {found:?}");
            };
            assert_eq!((size, mask, lanes), expected, "{text}");
        }
    }

    #[test]
    fn other_loads_under_a_mask_are_predicted() {
        for (code, text) in [
            (
                &[0x62, 0xf3, 0x75, 0x31, 0x1f, 0x0e, 0x00][..],
                "vpcmpeqd k1 {k1}, ymm1, [rsi]{1to8}",
            ),
            (
                &[0x62, 0xf2, 0x7d, 0x49, 0x30, 0x07],
                "vpmovzxbw zmm0 {k1}, [rdi]",
            ),
            (
                &[0x62, 0xf1, 0xfd, 0x29, 0x6f, 0x07],
                "vmovdqa64 ymm0 {k1}, [rdi]",
            ),
        ] {
            let found = of(code);
            let is_masked = matches!(found, ValuePlan::Masked { .. });
            assert!(!is_masked, "{text}: {found:?}");
        }
    }
}
