//! Instructions on general registers, flags and the stack.

use super::operands::operand;
use crate::execute::Operation;
use crate::execute::bits::Bits;
use crate::execute::control::Control;
use crate::execute::integer::Integer;
use crate::execute::multiply::Multiply;
use crate::execute::shift::Shift;
use crate::execute::string::{Element, Repeat, StringOperation};
use crate::operand::Operand;
use crate::state::flag;
use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// Returns the operation and the operands of an instruction. `None`: it is not modeled.
pub fn lift(instruction: &Instruction) -> Option<(Operation, [Operand; 4])> {
    if let Some(string) = string(instruction) {
        return Some((Operation::String(string), [Operand::None; 4]));
    }
    let operation = control(instruction)
        .map(Operation::Control)
        .or_else(|| integer(instruction).map(Operation::Integer))
        .or_else(|| shift(instruction).map(Operation::Shift))
        .or_else(|| bits(instruction).map(Operation::Bits))
        .or_else(|| multiply(instruction).map(Operation::Multiply))?;
    if operation == Operation::Integer(Integer::Nothing) {
        return Some((operation, [Operand::None; 4]));
    }
    let operands = [
        operand(instruction, 0)?,
        operand(instruction, 1)?,
        operand(instruction, 2)?,
        operand(instruction, 3)?,
    ];
    Some((operation, operands))
}

/// Returns the four bits of the condition in the instruction.
fn condition(instruction: &Instruction) -> Option<u8> {
    match instruction.condition_code() {
        ConditionCode::None => None,
        code => (code as u8).checked_sub(1),
    }
}

fn control(instruction: &Instruction) -> Option<Control> {
    let size =
        |instruction: &Instruction| u8::try_from(instruction.stack_pointer_increment().unsigned_abs()).ok();
    Some(match instruction.code() {
        Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Jmp_rm64 => Control::Jump,
        Code::Call_rel32_64 | Code::Call_rm64 => Control::Call,
        Code::Retnq | Code::Retnq_imm16 => Control::Return,
        Code::Jrcxz_rel8_64 => Control::JumpIfCounterZero(8),
        Code::Jecxz_rel8_64 => Control::JumpIfCounterZero(4),
        Code::Loop_rel8_64_RCX => Control::Loop(8),
        Code::Loop_rel8_64_ECX => Control::Loop(4),
        // AMD's processors let these prefixes choose between the two.
        Code::Loope_rel8_64_RCX
        | Code::Loope_rel8_64_ECX
        | Code::Loopne_rel8_64_RCX
        | Code::Loopne_rel8_64_ECX
            if instruction.has_rep_prefix() || instruction.has_repne_prefix() =>
        {
            return None;
        }
        Code::Loope_rel8_64_RCX => Control::LoopIf(8, true),
        Code::Loope_rel8_64_ECX => Control::LoopIf(4, true),
        Code::Loopne_rel8_64_RCX => Control::LoopIf(8, false),
        Code::Loopne_rel8_64_ECX => Control::LoopIf(4, false),
        Code::Leaveq => Control::Leave,
        _ if instruction.is_jcc_short_or_near() && instruction.op0_kind() == OpKind::NearBranch64 => {
            Control::JumpIf(condition(instruction)?)
        }
        _ => match instruction.mnemonic() {
            Mnemonic::Push => Control::Push(size(instruction)?),
            Mnemonic::Pop => Control::Pop,
            _ => return None,
        },
    })
}

fn integer(instruction: &Instruction) -> Option<Integer> {
    Some(match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movnti => Integer::Move,
        // Of two bytes, AMD's processors load four.
        Mnemonic::Movsxd if instruction.op0_register().size() == 2 => return None,
        Mnemonic::Movsx | Mnemonic::Movsxd => Integer::MoveSigned,
        Mnemonic::Lea => Integer::LoadAddress,
        Mnemonic::Xchg => Integer::Exchange,
        Mnemonic::Xadd => Integer::ExchangeAdd,
        // Manuals do not say when the upper half of a register is cleared.
        Mnemonic::Cmpxchg if instruction.op0_kind() == OpKind::Memory => Integer::CompareExchange,
        Mnemonic::Cmpxchg8b => Integer::CompareExchangePair(4),
        Mnemonic::Cmpxchg16b => Integer::CompareExchangePair(8),
        Mnemonic::Add => Integer::Add,
        Mnemonic::Adc => Integer::AddCarry,
        Mnemonic::Adcx => Integer::AddCarryOf(flag::CARRY),
        Mnemonic::Adox => Integer::AddCarryOf(flag::OVERFLOW),
        Mnemonic::Sub => Integer::Subtract,
        Mnemonic::Sbb => Integer::SubtractBorrow,
        Mnemonic::Cmp => Integer::Compare,
        Mnemonic::Inc => Integer::Increment,
        Mnemonic::Dec => Integer::Decrement,
        Mnemonic::Neg => Integer::Negate,
        Mnemonic::Not => Integer::Not,
        Mnemonic::And => Integer::And,
        Mnemonic::Or => Integer::Or,
        Mnemonic::Xor => Integer::Xor,
        Mnemonic::Test => Integer::Test,
        Mnemonic::Andn => Integer::AndNot,
        // The result of two bytes is undefined.
        Mnemonic::Bswap if instruction.op0_register().size() > 2 => Integer::SwapBytes,
        Mnemonic::Movbe => Integer::MoveSwapped,
        Mnemonic::Cbw => Integer::ExtendAccumulator(2),
        Mnemonic::Cwde => Integer::ExtendAccumulator(4),
        Mnemonic::Cdqe => Integer::ExtendAccumulator(8),
        Mnemonic::Cwd => Integer::SignToData(2),
        Mnemonic::Cdq => Integer::SignToData(4),
        Mnemonic::Cqo => Integer::SignToData(8),
        Mnemonic::Clc => Integer::SetFlag(flag::CARRY, false),
        Mnemonic::Stc => Integer::SetFlag(flag::CARRY, true),
        Mnemonic::Cld => Integer::SetFlag(flag::DIRECTION, false),
        Mnemonic::Std => Integer::SetFlag(flag::DIRECTION, true),
        Mnemonic::Cmc => Integer::ComplementCarry,
        Mnemonic::Sahf => Integer::FlagsFromAh,
        mnemonic => return conditional(instruction).or_else(|| nothing(instruction, mnemonic)),
    })
}

/// Returns the operation of an instruction that changes nothing but caches and order.
fn nothing(instruction: &Instruction, mnemonic: Mnemonic) -> Option<Integer> {
    // With a REX prefix, AMD's processors exchange registers.
    if mnemonic == Mnemonic::Pause && instruction.len() != 2 {
        return None;
    }
    matches!(
        mnemonic,
        Mnemonic::Nop
            | Mnemonic::Reservednop
            | Mnemonic::Endbr64
            | Mnemonic::Pause
            | Mnemonic::Lfence
            | Mnemonic::Mfence
            | Mnemonic::Sfence
            | Mnemonic::Prefetch
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
    )
    .then_some(Integer::Nothing)
}

fn conditional(instruction: &Instruction) -> Option<Integer> {
    let code = condition(instruction)?;
    match instruction.mnemonic() {
        Mnemonic::Cmova
        | Mnemonic::Cmovae
        | Mnemonic::Cmovb
        | Mnemonic::Cmovbe
        | Mnemonic::Cmove
        | Mnemonic::Cmovg
        | Mnemonic::Cmovge
        | Mnemonic::Cmovl
        | Mnemonic::Cmovle
        | Mnemonic::Cmovne
        | Mnemonic::Cmovno
        | Mnemonic::Cmovnp
        | Mnemonic::Cmovns
        | Mnemonic::Cmovo
        | Mnemonic::Cmovp
        | Mnemonic::Cmovs => Some(Integer::MoveIf(code)),
        Mnemonic::Seta
        | Mnemonic::Setae
        | Mnemonic::Setb
        | Mnemonic::Setbe
        | Mnemonic::Sete
        | Mnemonic::Setg
        | Mnemonic::Setge
        | Mnemonic::Setl
        | Mnemonic::Setle
        | Mnemonic::Setne
        | Mnemonic::Setno
        | Mnemonic::Setnp
        | Mnemonic::Setns
        | Mnemonic::Seto
        | Mnemonic::Setp
        | Mnemonic::Sets => Some(Integer::SetIf(code)),
        _ => None,
    }
}

fn shift(instruction: &Instruction) -> Option<Shift> {
    // Counts beyond the size make the result of two bytes undefined.
    let is_wide = instruction.op0_register().size() > 2 || instruction.memory_size().size() > 2;
    Some(match instruction.mnemonic() {
        Mnemonic::Shl | Mnemonic::Sal => Shift::Left,
        Mnemonic::Shr => Shift::Right,
        Mnemonic::Sar => Shift::RightSigned,
        Mnemonic::Rol => Shift::RotateLeft,
        Mnemonic::Ror => Shift::RotateRight,
        Mnemonic::Rcl => Shift::RotateCarryLeft,
        Mnemonic::Rcr => Shift::RotateCarryRight,
        Mnemonic::Shld if is_wide => Shift::DoubleLeft,
        Mnemonic::Shrd if is_wide => Shift::DoubleRight,
        Mnemonic::Shlx => Shift::LeftWithoutFlags,
        Mnemonic::Shrx => Shift::RightWithoutFlags,
        Mnemonic::Sarx => Shift::RightSignedWithoutFlags,
        Mnemonic::Rorx => Shift::RotateWithoutFlags,
        _ => return None,
    })
}

fn bits(instruction: &Instruction) -> Option<Bits> {
    Some(match instruction.mnemonic() {
        Mnemonic::Bt => Bits::Test,
        Mnemonic::Bts => Bits::TestAndSet,
        Mnemonic::Btr => Bits::TestAndReset,
        Mnemonic::Btc => Bits::TestAndComplement,
        Mnemonic::Tzcnt => Bits::TrailingZeros,
        Mnemonic::Lzcnt => Bits::LeadingZeros,
        Mnemonic::Bsf => Bits::ScanForward,
        Mnemonic::Bsr => Bits::ScanReverse,
        Mnemonic::Popcnt => Bits::Ones,
        Mnemonic::Bextr => Bits::Extract,
        Mnemonic::Blsi => Bits::IsolateLowest,
        Mnemonic::Blsr => Bits::ResetLowest,
        Mnemonic::Blsmsk => Bits::MaskLowest,
        Mnemonic::Bzhi => Bits::ZeroHigh,
        Mnemonic::Pdep => Bits::Deposit,
        Mnemonic::Pext => Bits::Gather,
        Mnemonic::Crc32 => Bits::Crc32,
        _ => return None,
    })
}

fn multiply(instruction: &Instruction) -> Option<Multiply> {
    Some(match instruction.mnemonic() {
        Mnemonic::Mul => Multiply::Unsigned,
        Mnemonic::Imul if instruction.op_count() == 1 => Multiply::Signed,
        Mnemonic::Imul => Multiply::Truncated,
        Mnemonic::Mulx => Multiply::WithoutFlags,
        Mnemonic::Div => Multiply::Divide,
        Mnemonic::Idiv => Multiply::DivideSigned,
        _ => return None,
    })
}

fn string(instruction: &Instruction) -> Option<StringOperation> {
    let element = match instruction.mnemonic() {
        Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => Element::Move,
        Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => Element::Store,
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => Element::Load,
        Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq => Element::Scan,
        Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsd | Mnemonic::Cmpsq => Element::Compare,
        _ => return None,
    };
    // Instructions on vectors have some of these names, and short addresses are not modeled.
    let is_string = |at| match instruction.op_kind(at) {
        OpKind::MemorySegRSI | OpKind::MemoryESRDI => true,
        OpKind::Register => instruction.op_register(at).is_gpr(),
        _ => false,
    };
    let has_base = matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    if instruction.op_count() != 2 || !is_string(0) || !is_string(1) || has_base {
        return None;
    }
    let is_comparison = matches!(element, Element::Scan | Element::Compare);
    let repeat = match (instruction.has_rep_prefix(), instruction.has_repne_prefix()) {
        (false, false) => Repeat::Once,
        (true, false) if is_comparison => Repeat::While(true),
        (true, false) => Repeat::Count,
        (false, true) if is_comparison => Repeat::While(false),
        _ => return None,
    };
    Some(StringOperation {
        element,
        size: u8::try_from(instruction.memory_size().size()).ok()?,
        repeat,
    })
}
