//! The variables in scope at an address, and their locations.

use crate::entry_id::EntryId;
use crate::location::LocationExpression;
use crate::types::Language;
use std::sync::Arc;

/// The names that source code can use in a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The parameters, in order.
    pub parameters: Vec<Variable>,
    /// The variables of the blocks around the address, the innermost block first.
    pub blocks: Vec<Vec<Variable>>,
    /// The frame base, used by `DW_OP_fbreg`.
    pub frame_base: Option<LocationExpression>,
    /// The language of the unit.
    pub language: Language,
    /// The entry of the function.
    pub function: Option<EntryId>,
}

/// A variable, parameter or constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// The name. Global variables have a qualified name.
    pub name: Arc<str>,
    /// The entry of the variable.
    pub entry: EntryId,
    /// The entry of its type.
    pub type_entry: Option<EntryId>,
    /// The location of its value.
    pub location: VariableLocation,
    /// Whether the compiler added it.
    pub artificial: bool,
    /// The line of its declaration.
    pub line: Option<u32>,
}

impl Variable {
    /// Returns whether the compiler made the variable for itself, such as the range of a loop.
    /// Clang marks structured bindings of the source as artificial too.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.artificial && (self.name.is_empty() || self.name.starts_with("__"))
    }
}

/// The location of a variable's value.
#[derive(Clone, Debug, PartialEq)]
pub enum VariableLocation {
    /// The variable was optimized out, or has no value at this address.
    OptimizedOut,
    /// A constant.
    Constant(i128),
    /// Constant bytes.
    Bytes(Arc<[u8]>),
    /// The location that an expression computes.
    Expression(LocationExpression),
    /// This is only a declaration; another entry defines the variable.
    DeclaredOnly,
    /// The location is unknown for this reason.
    Unknown(&'static str),
}

/// The meaning of a name that is not a local variable.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Global {
    /// A variable.
    Variable(Variable),
    /// An enumerator.
    Enumerator {
        /// The enumeration.
        entry: EntryId,
        /// The value.
        value: i128,
    },
}

/// A named data object in a symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSymbol<A> {
    /// The demangled name.
    pub name: Arc<str>,
    /// The start address.
    pub start: A,
    /// The size in bytes; 0 if it is not stated.
    pub size: u64,
}
