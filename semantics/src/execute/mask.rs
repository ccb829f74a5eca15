//! Instructions on mask registers alone.

use super::machine::{Done, Machine};
use crate::memory::Memory;
use crate::operand::Operand;
use crate::state::{flag, ones};

/// An operation on masks. The operands are: the destination, and one or two sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    /// The operation.
    pub kind: MaskKind,
    /// The size in bytes. Bits above become zero.
    pub size: u8,
}

/// The operation of a [`Mask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskKind {
    /// `kmov`.
    Move,
    /// `knot`.
    Not,
    /// `kand`.
    And,
    /// `kandn`.
    AndNot,
    /// `kor`.
    Or,
    /// `kxor`.
    Xor,
    /// `kxnor`.
    Xnor,
    /// `kadd`.
    Add,
    /// `kshiftl`.
    ShiftLeft,
    /// `kshiftr`.
    ShiftRight,
    /// `kunpck`: the low half of the first above that of the second.
    Unpack,
    /// `kortest`: ZF and CF of the destination and the source.
    OrTest,
    /// `ktest`: ZF and CF of the destination and the source.
    Test,
}

impl Mask {
    /// Applies the operation.
    pub fn execute<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [target, one, two, _] = *operands;
        let all = ones(self.size);
        let first = machine.read(one)? & all;
        if matches!(self.kind, MaskKind::OrTest | MaskKind::Test) {
            let target = machine.read(target)? & all;
            let (zero, carry) = match self.kind {
                MaskKind::OrTest => (target | first == 0, target | first == all),
                _ => (target & first == 0, !target & first == 0),
            };
            let zero = if zero { flag::ZERO } else { 0 };
            let carry = if carry { flag::CARRY } else { 0 };
            machine.state.set_flags(flag::STATUS, zero | carry);
            return Ok(());
        }
        let second = machine.read(two)?;
        let count = u32::try_from(second & 0xff).unwrap_or(u32::MAX);
        let half = 4 * u32::from(self.size);
        let result = match self.kind {
            MaskKind::Move => first,
            MaskKind::Not => !first,
            MaskKind::And => first & second,
            MaskKind::AndNot => !first & second,
            MaskKind::Or => first | second,
            MaskKind::Xor => first ^ second,
            MaskKind::Xnor => !(first ^ second),
            MaskKind::Add => first.wrapping_add(second),
            MaskKind::ShiftLeft => first.unbounded_shl(count),
            MaskKind::ShiftRight => first.unbounded_shr(count),
            _ => (first & ones(self.size / 2)) << half | second & ones(self.size / 2),
        };
        machine.write(target, result & all)
    }
}
