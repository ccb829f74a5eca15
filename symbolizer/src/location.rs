//! Locations of values, and the frame state that they depend on (DWARF 5, section 2.6).

use crate::entry_id::EntryId;
use std::borrow::Cow;
use std::sync::Arc;

/// The reason why a value is unknown, for "<unknown: …>".
pub type Unknown = Cow<'static, str>;

/// A DWARF expression that describes the location of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationExpression {
    pub(crate) code: Arc<[u8]>,
    /// An entry of the unit that the expression belongs to.
    pub(crate) unit: EntryId,
}

impl LocationExpression {
    /// Returns whether the expression is exactly one of `DW_OP_reg0` to `DW_OP_reg31`.
    #[must_use]
    pub fn is_register(&self) -> bool {
        matches!(*self.code, [0x50..=0x6f])
    }
}

/// The state of the frame in which an expression is evaluated.
pub trait FrameState {
    /// Returns actual minus stated addresses of the module.
    fn bias(&self) -> u64;

    /// Returns the value of the register with this DWARF number.
    ///
    /// # Errors
    /// The reason why it is unknown.
    fn register(&self, register: u16) -> Result<u64, Unknown>;

    /// Fills `out` with the memory at `address`.
    ///
    /// # Errors
    /// The reason why some of it is unknown.
    fn memory(&self, address: u64, out: &mut [u8]) -> Result<(), Unknown>;

    /// Returns the canonical frame address.
    ///
    /// # Errors
    /// The reason why it is unknown.
    fn cfa(&self) -> Result<u64, Unknown>;

    /// Returns the address of the thread's copy of the data at `offset` in the module's
    /// thread-local storage.
    ///
    /// # Errors
    /// The reason why it is unknown.
    fn thread_local(&self, offset: u64) -> Result<u64, Unknown>;

    /// Returns the value that a register had at the entry of the function.
    ///
    /// # Errors
    /// The reason why it is unknown.
    fn entry_value(&self, register: u16) -> Result<u64, Unknown>;
}

/// A piece of a value, and its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The size in bits. `None` means all of the value.
    pub bits: Option<u64>,
    /// The offset of its first bit in the location.
    pub bit_offset: u64,
    /// The location.
    pub location: ValueLocation,
}

/// The location of a value, or of a piece of it (DWARF 5, section 2.6.1.1).
#[derive(Clone, Debug, PartialEq)]
pub enum ValueLocation {
    /// The value was optimized out.
    OptimizedOut,
    /// The location or value is unknown for this reason.
    Unknown(Unknown),
    /// The register with this DWARF number.
    Register(u16),
    /// The memory at this address.
    Memory(u64),
    /// An implicit value, as little-endian bytes.
    Value([u8; 8]),
    /// An implicit value of any length.
    Bytes(Arc<[u8]>),
    /// A pointer to a variable that has no memory address.
    ImplicitPointer {
        /// The variable.
        entry: EntryId,
        /// The offset into the variable in bytes.
        offset: i64,
    },
}

/// A call site, described by the debug information of the caller (DWARF 5, section 3.4).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSite {
    /// The linkage name of the called function, or its name. `None` for a call through a pointer.
    pub target: Option<Arc<str>>,
    /// The values of registers at the call, by DWARF number, as expressions in the caller.
    pub parameters: Vec<(u16, LocationExpression)>,
    /// The frame base of the caller, used by `DW_OP_fbreg`.
    pub frame_base: Option<LocationExpression>,
}
