//! The order of operands of vector instructions, and operations that depend on the operands.

use crate::execute::vector::{Arithmetic, VectorKind};

/// The roles of the operands of an instruction, without its constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Destination and source.
    Unary,
    /// Destination, which is the first source, or two sources after it.
    Binary,
    /// As binary, on the lowest lane alone.
    Scalar,
    /// As scalar, with an integer as the second source.
    Integer,
    /// Destination, and a source with more bytes.
    Narrow,
    /// `movss` and `movsd`: a lane of a register, or all zeros around a lane in memory.
    Low,
    /// `movlps`: the low half from memory, or to memory.
    Half,
    /// `movhps`: the high half from memory, or to memory.
    High,
    /// Destination and source are one in the short form, with a constant.
    Bytes,
    /// Two sources and the signs of a third.
    BlendBySigns,
    /// `vpermq` by a constant. The form with a vector has other lanes.
    Permute,
    /// `vpermilp…` by a constant or by a vector.
    InLane,
    /// The destination is the third source.
    Fused,
    /// As fused, on the lowest lane alone.
    FusedScalar,
    /// Two sources, and flags.
    Flags,
    /// No operands.
    Nothing,
}

/// An operation, or a rule to choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One operation.
    Fixed(VectorKind),
    /// Equality, with a vector or a mask as the result.
    Equal,
    /// Being greater, with a vector or a mask as the result.
    Greater,
    /// A shift by a constant or by a vector.
    Shift(Arithmetic),
    /// A comparison of numbers, with a vector or a mask as the result.
    Compare,
    /// From an integer of the operand's size.
    FromInteger,
    /// To an integer of the operand's size; whether the fraction is cut.
    ToInteger(bool),
}
