//! Instructions on vector and mask registers.

mod arithmetic;
mod float;
pub(super) mod lanes;
mod shuffle;
mod sums;

pub use arithmetic::Arithmetic;
pub use float::{Float, Fused};
pub use shuffle::Shuffle;
pub use sums::Sum;

use super::machine::{Done, Machine};
use crate::memory::{Memory, Stop};
use crate::operand::{Address, Operand};
use crate::state::{State, Vector as Register, flag, ones};
use lanes::{from_lanes, from_number, lane, set_lane, signed_lane};
use shuffle::Inputs;

/// An operation on vectors. The operands are: the destination, the first, the second and the third
/// source. Instructions with two operands have their destination as the first source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The operation.
    pub kind: VectorKind,
    /// The size of a lane in bytes.
    pub size: u8,
    /// The size of the result in bytes.
    pub length: u8,
    /// The constant in the instruction.
    pub constant: u8,
    /// Whether only the lowest lane is computed. The others are those of the first source, or of
    /// the destination if that is a source.
    pub is_scalar: bool,
    /// Whether bytes above the result are kept.
    pub keeps_upper: bool,
    /// Whether an operand in memory is one lane, for all lanes.
    pub is_broadcast: bool,
    /// The number of the mask register. Zero: all lanes are written.
    pub mask: u8,
    /// Whether lanes without mask become zero.
    pub zeroes: bool,
}

/// The operation of a [`Vector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorKind {
    /// The second source.
    Move,
    /// The upper half of 16 bytes is the second source.
    MoveToHigh,
    /// The low half of 16 bytes is the upper half of the second source.
    MoveHighToLow,
    /// The low bytes of the second source, and zeros above.
    Part(u8),
    /// Arithmetic on pairs of lanes.
    Arithmetic(Arithmetic),
    /// A shift of all lanes by one count: the low eight bytes of the second source.
    ShiftAll(Arithmetic),
    /// A shift of all lanes of the second source by the constant.
    ShiftBy(Arithmetic),
    /// A rearrangement.
    Shuffle(Shuffle),
    /// A sum over neighbors.
    Sum(Sum),
    /// Floating-point arithmetic.
    Float(Float),
    /// A product and a sum.
    Fused(Fused),
    /// `vpternlog`: the constant is the table.
    Ternary,
    /// To numbers of the other size.
    Resize,
    /// From signed integers of this size to numbers of the lane's size.
    FromInteger(u8),
    /// To signed integers of this size; whether the fraction is cut.
    ToInteger(u8, bool),
    /// The signs of all lanes, in a general register.
    Signs,
    /// The signs of all lanes, in a mask register, or the other way around.
    MaskFromSigns,
    /// All ones in each lane whose mask bit is set.
    SignsFromMask,
    /// A comparison of integers, in a mask register: by the constant; whether they are signed.
    CompareToMask(bool),
    /// A comparison of numbers, in a mask register, by the constant.
    CompareFloatToMask,
    /// Whether both have a common one, in a mask register; whether the result is negated.
    TestToMask(bool),
    /// `ptest`: ZF and CF.
    TestBits,
    /// `vtestp…`: ZF and CF by the signs.
    TestSigns,
    /// `comis…` and `ucomis…`: ZF, PF and CF.
    CompareFlags,
    /// `vzeroupper` and `vzeroall`: the first byte that becomes zero.
    Zero(u8),
}

/// The sources of an operation.
struct Sources {
    first: Register,
    second: Register,
    third: Register,
}

impl Vector {
    /// Applies the operation.
    pub fn execute<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [target, first, second, third] = *operands;
        if let VectorKind::Zero(from) = self.kind {
            for register in &mut machine.state.vectors[..16] {
                register[usize::from(from)..].fill(0);
            }
            return Ok(());
        }
        let sources = Sources {
            first: self.read(first, machine)?,
            second: self.read(second, machine)?,
            third: self.read(third, machine)?,
        };
        if self.needs_rounding() && !machine.state.rounds_to_nearest() {
            return Err(Stop::Rounding);
        }
        if let Some(flags) = self.flags(&sources) {
            machine.state.set_flags(flag::STATUS, flags);
            return Ok(());
        }
        let mut result = self.compute(&sources);
        if self.is_scalar {
            let low = lane(&result, 0, self.size);
            result = match self.kind {
                VectorKind::Fused(_) => sources.third,
                _ => sources.first,
            };
            set_lane(&mut result, 0, self.size, low);
        }
        self.write(target, &result, machine)
    }

    /// Returns whether the result depends on the rounding mode.
    const fn needs_rounding(self) -> bool {
        matches!(
            self.kind,
            VectorKind::Float(_)
                | VectorKind::Fused(_)
                | VectorKind::Resize
                | VectorKind::FromInteger(_)
                | VectorKind::ToInteger(..)
                | VectorKind::CompareFlags
                | VectorKind::CompareFloatToMask
        )
    }

    /// Returns a source. Lanes in memory whose mask bit is clear are not read.
    fn read<M: Memory>(self, operand: Operand, machine: &mut Machine<'_, M>) -> Done<M, Register> {
        let mut result = [0; 64];
        match operand {
            Operand::Vector(number) => result = machine.state.vectors[usize::from(number & 31)],
            Operand::Memory { address, size } if self.is_broadcast => {
                if self.active(machine.state) != 0 {
                    let value = machine.load(address.linear(machine.state), size)?;
                    result = from_lanes(self.length, size, |_| value);
                }
            }
            Operand::Memory { address, size }
                if self.mask != 0 && (self.is_scalar || size == self.length) =>
            {
                let lane = u64::MAX >> (64 - u32::from(self.size.clamp(1, 8)));
                let lanes = self.lanes(machine.state);
                let enabled = lanes.fold(0, |all, at| all | lane << (at * usize::from(self.size)));
                let bytes = &mut result[..usize::from(size.min(64))];
                machine
                    .memory
                    .load_masked(address.linear(machine.state), bytes, enabled)
                    .map_err(Stop::Memory)?;
            }
            Operand::Memory { address, size } => {
                let bytes = &mut result[..usize::from(size.min(64))];
                machine
                    .memory
                    .load(address.linear(machine.state), bytes)
                    .map_err(Stop::Memory)?;
            }
            _ => result = from_number(machine.read(operand)?),
        }
        Ok(result)
    }

    /// Returns the bits of the mask that belong to lanes.
    fn active(self, state: &State) -> u64 {
        let count = if self.is_scalar {
            1
        } else {
            u32::from(self.length / self.size)
        };
        let all = u64::MAX >> (64 - count.clamp(1, 64));
        if self.mask == 0 {
            return all;
        }
        state.masks[usize::from(self.mask & 7)] & all
    }

    /// Returns the lanes whose mask bit is set.
    fn lanes(self, state: &State) -> impl Iterator<Item = usize> + use<> {
        let active = self.active(state);
        (0..64).filter(move |at| active >> at & 1 != 0)
    }

    fn write<M: Memory>(self, target: Operand, result: &Register, machine: &mut Machine<'_, M>) -> Done<M> {
        match target {
            Operand::Vector(number) => {
                let old = machine.state.vectors[usize::from(number & 31)];
                let mut new = if self.keeps_upper { old } else { [0; 64] };
                let length = usize::from(self.length);
                new[..length].copy_from_slice(&result[..length]);
                if self.mask != 0 {
                    let active = self.active(machine.state);
                    let lanes = if self.is_scalar {
                        1
                    } else {
                        self.length / self.size
                    };
                    for at in (0..usize::from(lanes)).filter(|at| active >> at & 1 == 0) {
                        let kept = if self.zeroes { 0 } else { lane(&old, at, self.size) };
                        set_lane(&mut new, at, self.size, kept);
                    }
                }
                machine.state.vectors[usize::from(number & 31)] = new;
                Ok(())
            }
            Operand::Memory { address, size } if self.mask != 0 => {
                self.store_lanes(address, size, result, machine)
            }
            Operand::Memory { address, size } => {
                let address = address.linear(machine.state);
                let bytes = &result[..usize::from(size.min(64))];
                machine.memory.store(address, bytes).map_err(Stop::Memory)
            }
            Operand::Mask(number) => {
                // Lanes without mask have a clear bit.
                let mask = lane(result, 0, 8) & self.active(machine.state);
                machine.state.masks[usize::from(number & 7)] = mask;
                Ok(())
            }
            _ => machine.write(target, lane(result, 0, 8)),
        }
    }

    fn store_lanes<M: Memory>(
        self,
        address: Address,
        size: u8,
        result: &Register,
        machine: &mut Machine<'_, M>,
    ) -> Done<M> {
        let start = address.linear(machine.state);
        for at in self.lanes(machine.state) {
            let offset = at as u64 * u64::from(self.size);
            if offset < u64::from(size) {
                let value = lane(result, at, self.size);
                machine.store(start.wrapping_add(offset), self.size, value)?;
            }
        }
        Ok(())
    }

    fn compute(self, sources: &Sources) -> Register {
        let Sources { first, second, third } = sources;
        let (size, length) = (self.size, self.length);
        match self.kind {
            VectorKind::Move => *second,
            VectorKind::Part(bytes) => {
                let mut result = [0; 64];
                let bytes = usize::from(bytes);
                result[..bytes].copy_from_slice(&second[..bytes]);
                result
            }
            VectorKind::MoveToHigh => {
                let mut result = *first;
                set_lane(&mut result, 1, 8, lane(second, 0, 8));
                result
            }
            VectorKind::MoveHighToLow => {
                let mut result = *first;
                set_lane(&mut result, 0, 8, lane(second, 1, 8));
                result
            }
            VectorKind::Arithmetic(operation) => operation.apply(first, second, size, length),
            VectorKind::ShiftAll(operation) => {
                arithmetic::shift_all(operation, first, lane(second, 0, 8), size, length)
            }
            VectorKind::ShiftBy(operation @ (Arithmetic::RotateLeft | Arithmetic::RotateRight)) => {
                let count = from_lanes(length, size, |_| self.constant.into());
                operation.apply(second, &count, size, length)
            }
            VectorKind::ShiftBy(operation) => {
                arithmetic::shift_all(operation, second, self.constant.into(), size, length)
            }
            VectorKind::Shuffle(shuffle) => shuffle.apply(Inputs {
                first,
                second,
                third,
                constant: self.constant,
                size,
                length,
            }),
            VectorKind::Sum(sum) => sum.apply(first, second, size, length),
            VectorKind::Float(float) => float.apply(first, second, self.constant, size, length),
            VectorKind::Fused(fused) => fused.apply(third, first, second, size, length),
            VectorKind::Ternary => from_lanes(length, 8, |at| {
                let [a, b, c] = [third, first, second].map(|vector| lane(vector, at, 8));
                (0..8)
                    .filter(|entry| self.constant >> entry & 1 != 0)
                    .fold(0, |bits, entry| {
                        let of = |value: u64, bit: u8| if entry & bit != 0 { value } else { !value };
                        bits | of(a, 4) & of(b, 2) & of(c, 1)
                    })
            }),
            _ => self.convert(sources),
        }
    }

    fn convert(self, sources: &Sources) -> Register {
        let Sources { first, second, .. } = sources;
        let (size, length) = (self.size, self.length);
        let count = usize::from(length / size);
        let bits = |holds: &dyn Fn(usize) -> bool| {
            let bits = (0..count).filter(|&at| holds(at)).map(|at| 1_u64 << at);
            from_number(bits.sum())
        };
        match self.kind {
            VectorKind::Resize => {
                let from = 12 - size;
                from_lanes(length / size.max(from) * size, size, |at| {
                    float::resized(lane(second, at, from), from)
                })
            }
            VectorKind::FromInteger(from) => from_lanes(length, size, |at| {
                let value = signed_lane(second, at, from);
                if size == 4 {
                    (value as f32).to_bits().into()
                } else {
                    (value as f64).to_bits()
                }
            }),
            VectorKind::ToInteger(to, truncates) => from_lanes(length / size.max(to) * to, to, |at| {
                float::to_integer(float::double(lane(second, at, size), size), truncates, to)
            }),
            VectorKind::Signs | VectorKind::MaskFromSigns => bits(&|at| signed_lane(second, at, size) < 0),
            VectorKind::SignsFromMask => {
                let mask = lane(second, 0, 8);
                from_lanes(length, size, |at| if mask >> at & 1 != 0 { u64::MAX } else { 0 })
            }
            VectorKind::CompareToMask(is_signed) => bits(&|at| {
                let flip = if is_signed {
                    ones(size) ^ ones(size) >> 1
                } else {
                    0
                };
                let [left, right] = [first, second].map(|vector| lane(vector, at, size) ^ flip);
                let holds = match self.constant & 3 {
                    0 => left == right,
                    1 => left < right,
                    2 => left <= right,
                    _ => false,
                };
                holds != (self.constant & 4 != 0)
            }),
            VectorKind::CompareFloatToMask => bits(&|at| {
                let [left, right] = [first, second].map(|vector| float::double(lane(vector, at, size), size));
                float::relation(self.constant, left, right)
            }),
            VectorKind::TestToMask(is_negated) => {
                bits(&|at| (lane(first, at, size) & lane(second, at, size) != 0) != is_negated)
            }
            _ => *second,
        }
    }

    /// Returns the flags of an instruction that sets nothing else.
    fn flags(self, sources: &Sources) -> Option<u64> {
        let Sources { first, second, .. } = sources;
        let length = usize::from(self.length);
        let of = |is_zero: bool, is_carry: bool| {
            let zero = if is_zero { flag::ZERO } else { 0 };
            zero | if is_carry { flag::CARRY } else { 0 }
        };
        match self.kind {
            VectorKind::TestBits => {
                let pairs = || first[..length].iter().zip(&second[..length]);
                Some(of(
                    pairs().all(|(left, right)| left & right == 0),
                    pairs().all(|(left, right)| !left & right == 0),
                ))
            }
            VectorKind::TestSigns => {
                let count = length / usize::from(self.size);
                let is_negative = |vector: &Register, at| signed_lane(vector, at, self.size) < 0;
                let mut pairs = (0..count).map(|at| (is_negative(first, at), is_negative(second, at)));
                let (mut zero, mut carry) = (true, true);
                for (left, right) in &mut pairs {
                    zero &= !(left && right);
                    carry &= left || !right;
                }
                Some(of(zero, carry))
            }
            VectorKind::CompareFlags => {
                let [left, right] = [first, second].map(|vector| lane(vector, 0, self.size));
                if float::is_nan(left, self.size) || float::is_nan(right, self.size) {
                    return Some(flag::ZERO | flag::PARITY | flag::CARRY);
                }
                let [left, right] = [left, right].map(|bits| float::double(bits, self.size));
                Some(of(left == right, left < right))
            }
            _ => None,
        }
    }
}
