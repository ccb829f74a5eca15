//! Entries of the variables view that are not values of the program.

use crate::protocol::types::{Variable, VariablePresentationHint, VariablePresentationHintAttributes};

/// Marks a value as read-only, because a recording cannot be changed.
pub fn read_only() -> VariablePresentationHint {
    VariablePresentationHint {
        attributes: Some(vec![VariablePresentationHintAttributes::ReadOnly]),
        ..VariablePresentationHint::default()
    }
}

/// Returns a read-only entry that is not a value of the program.
pub fn note(name: &str, value: &str) -> Variable {
    Variable {
        name: name.to_owned(),
        value: value.to_owned(),
        presentation_hint: Some(read_only()),
        ..Variable::default()
    }
}
