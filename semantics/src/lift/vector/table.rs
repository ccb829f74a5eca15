//! The operations of vector instructions, by their mnemonics.

mod arithmetic;
mod floats;
mod masks;
mod moves;
mod shuffles;

use super::form::{Choice, Form};
use crate::execute::vector::{Arithmetic, Fused, Shuffle, VectorKind};
use iced_x86::Mnemonic as M;
use std::sync::LazyLock;

/// Mnemonics of one operation, the order of their operands, and the size of a lane in bytes.
type Row = (&'static [M], Form, Choice, u8);

/// Returns the operation of a mnemonic.
pub fn find(mnemonic: M) -> Option<(Form, Choice, u8)> {
    static BY_NUMBER: LazyLock<Vec<Option<(Form, Choice, u8)>>> = LazyLock::new(|| {
        let mut rows = vec![None; M::values().len()];
        for (mnemonics, form, choice, size) in [
            arithmetic::ROWS,
            shuffles::ROWS,
            moves::ROWS,
            floats::ROWS,
            masks::ROWS,
        ]
        .into_iter()
        .flatten()
        {
            for mnemonic in *mnemonics {
                if let Some(row) = rows.get_mut(*mnemonic as usize) {
                    *row = Some((*form, *choice, *size));
                }
            }
        }
        rows
    });
    BY_NUMBER.get(mnemonic as usize).copied().flatten()
}

const fn arithmetic(operation: Arithmetic) -> Choice {
    Choice::Fixed(VectorKind::Arithmetic(operation))
}

const fn shuffle(operation: Shuffle) -> Choice {
    Choice::Fixed(VectorKind::Shuffle(operation))
}

const fn fixed(kind: VectorKind) -> Choice {
    Choice::Fixed(kind)
}

const fn fused(form: u16, negate_product: bool, subtract: [bool; 2]) -> Choice {
    Choice::Fixed(VectorKind::Fused(Fused {
        form,
        negate_product,
        subtract,
    }))
}
