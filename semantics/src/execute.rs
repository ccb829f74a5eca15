//! Operations by their kinds, and their effects.

pub mod bits;
pub mod control;
mod flags;
pub mod integer;
mod machine;
pub mod mask;
pub mod multiply;
pub mod shift;
pub mod string;
pub mod text;
pub mod vector;

use bits::Bits;
use control::Control;
use integer::Integer;
pub use machine::Machine;
use mask::Mask;
use multiply::Multiply;
use shift::Shift;
use string::StringOperation;
use text::TextCompare;
use vector::Vector;

/// The operation of a model, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A move, sum, difference or logic.
    Integer(Integer),
    /// A shift or rotation.
    Shift(Shift),
    /// An operation on bits.
    Bits(Bits),
    /// A product or quotient.
    Multiply(Multiply),
    /// A branch, or an operation on the stack.
    Control(Control),
    /// A string instruction.
    String(StringOperation),
    /// A comparison of texts in vectors.
    Text(TextCompare),
    /// An operation on vectors.
    Vector(Vector),
    /// An operation on mask registers alone.
    Mask(Mask),
}
