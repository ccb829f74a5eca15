//! The model of variables: what is in scope at an address, and where its value is.

use crate::place::LocationExpression;
use crate::types::{EntryId, Language};
use std::sync::Arc;

/// What the source can name in a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The parameters, in order.
    pub parameters: Vec<Variable>,
    /// The variables of the blocks around the address, the innermost block first.
    pub blocks: Vec<Vec<Variable>>,
    /// What `DW_OP_fbreg` counts from.
    pub frame_base: Option<LocationExpression>,
    /// The language of the unit.
    pub language: Language,
    /// The function's entry.
    pub function: Option<EntryId>,
}

/// A variable, parameter or constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// What it is called; of a global one, with the namespaces and types around it.
    pub name: Arc<str>,
    /// Its entry.
    pub entry: EntryId,
    /// Its type.
    pub type_entry: Option<EntryId>,
    /// Where its value is.
    pub location: VariableLocation,
    /// The compiler added it.
    pub artificial: bool,
    /// Where it is declared.
    pub line: Option<u32>,
}

/// Where the value of a variable is.
#[derive(Clone, Debug, PartialEq)]
pub enum VariableLocation {
    /// Nowhere: it was optimized away, or has no value at this address.
    OptimizedOut,
    /// It is this number.
    Constant(i64),
    /// It is these bytes.
    Bytes(Arc<[u8]>),
    /// Where an expression says.
    Expression(LocationExpression),
    /// It is only declared here; another entry defines it.
    Elsewhere,
    /// It is not known for want of something.
    Unknown(&'static str),
}

/// What a name that is no local variable means.
#[derive(Clone, Debug, PartialEq)]
pub enum Global {
    /// A variable.
    Variable(Variable),
    /// An enumerator: its enumeration and value.
    Enumerator {
        /// Its enumeration.
        entry: EntryId,
        /// Its value.
        value: i64,
    },
}

/// A named piece of data in a symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSymbol<A> {
    /// The demangled name.
    pub name: Arc<str>,
    /// Where it starts.
    pub start: A,
    /// In bytes; 0 where it is not stated.
    pub size: u64,
}
