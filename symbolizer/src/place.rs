//! The model of places: where a value is, and what has to be known to find it (DWARF 5, section 2.6).

use crate::types::EntryId;
use std::borrow::Cow;
use std::sync::Arc;

/// Why something is not known, for "<unknown: …>".
pub type Unknown = Cow<'static, str>;

/// A DWARF expression of a file that says where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationExpression {
    pub(crate) code: Arc<[u8]>,
    /// An entry of the unit that it belongs to.
    pub(crate) unit: EntryId,
}

impl LocationExpression {
    /// It is `DW_OP_reg0` to `DW_OP_reg31`, and nothing else.
    #[must_use]
    pub fn is_register(&self) -> bool {
        matches!(*self.code, [0x50..=0x6f])
    }
}

/// What an expression asks of the frame that it is evaluated in.
pub trait FrameState {
    /// Actual − stated address of the module.
    fn bias(&self) -> u64;

    /// The value of the register with this DWARF number.
    ///
    /// # Errors
    /// Why it is not known.
    fn register(&self, register: u16) -> Result<u64, Unknown>;

    /// Fills `out` with the memory at `address`.
    ///
    /// # Errors
    /// Why it is not all known.
    fn memory(&self, address: u64, out: &mut [u8]) -> Result<(), Unknown>;

    /// The canonical frame address.
    ///
    /// # Errors
    /// Why it is not known.
    fn cfa(&self) -> Result<u64, Unknown>;

    /// The address of the thread's copy of the data at `offset` in the module's thread-local storage.
    ///
    /// # Errors
    /// Why it is not known.
    fn thread_local(&self, offset: u64) -> Result<u64, Unknown>;

    /// The value that a register had when the function was entered.
    ///
    /// # Errors
    /// Why it is not known.
    fn entry_value(&self, register: u16) -> Result<u64, Unknown>;
}

/// A part of a value, and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// How many bits; `None`: all of the value.
    pub bits: Option<u64>,
    /// The first bit in its place.
    pub bit_offset: u64,
    /// Where it is.
    pub place: Place,
}

/// Where a value, or a part of it, is.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Nowhere.
    OptimizedOut,
    /// For this reason it is not known where a piece is, or what.
    Unknown(Unknown),
    /// In the register with this DWARF number.
    Register(u16),
    /// In memory.
    Memory(u64),
    /// It is this, as little-endian bytes.
    Value([u8; 8]),
    /// It is these bytes.
    Bytes(Arc<[u8]>),
    /// It points into a variable that is in no memory.
    ImplicitPointer {
        /// The variable.
        entry: EntryId,
        /// Where in it, in bytes.
        offset: i64,
    },
}

/// A call as the debug information of the caller describes it (DWARF 5, section 3.4).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSite {
    /// The linkage name of the function that is called, or its name; `None`: it is called by a pointer.
    pub target: Option<Arc<str>>,
    /// What registers hold at the call, by their DWARF numbers, as expressions in the caller.
    pub parameters: Vec<(u16, LocationExpression)>,
    /// What `DW_OP_fbreg` counts from in the caller.
    pub frame_base: Option<LocationExpression>,
}
