//! The interface through which values read registers and memory, and learn their origin.

use backtrail_pt::Avma;
use backtrail_symbolizer::Unknown;

/// The frame in which expressions are evaluated.
pub struct Frame<'a> {
    /// The code address at which variables are looked up; `None` if unknown.
    pub look_up: Option<Avma>,
    /// The frame's program counter; `None` if unknown.
    pub pc: Option<u64>,
    /// The number of inlined functions inside of this one in the same physical frame.
    pub level: usize,
    /// Reads the frame's registers and memory.
    pub source: Box<dyn ValueSource + 'a>,
}

/// Reads registers and memory of a frame, or reports why they are unknown.
///
/// All values are computed from a source alone. The returned data is exact.
pub trait ValueSource {
    /// Returns a general register of the frame by its DWARF number.
    fn register(&self, register: u16) -> Result<u64, Unknown>;

    /// Returns a register of which only the low `size` bytes are valid.
    ///
    /// These can be known where the whole register is not. The other bytes are undefined.
    fn low(&self, register: u16, size: usize) -> Result<u64, Unknown> {
        let _ = size;
        self.register(register)
    }

    /// Returns a vector register (xmm0 to xmm15).
    fn vector(&self, number: u16) -> Result<[u8; 16], Unknown>;

    /// Returns a register that calls do not preserve by name: flags, segments.
    fn special(&self, name: &str) -> Result<u64, Unknown>;

    /// Fills `out` with the memory at address `at`.
    fn memory(&self, at: u64, out: &mut [u8]) -> Result<(), Unknown>;

    /// Returns the canonical frame address.
    fn cfa(&self) -> Result<u64, Unknown>;

    /// Returns the thread pointer, and the entry point of the program.
    fn thread_pointer(&self) -> Result<(u64, Option<Avma>), Unknown>;

    /// Returns the value that a register had on entry to the frame's function.
    fn entry_value(&self, register: u16) -> Result<u64, Unknown>;

    /// Returns how the values read since the last call of this method were recovered.
    ///
    /// Values that were read directly have no origin.
    fn origins(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A source that knows nothing.
pub struct NoSource(Unknown);

impl NoSource {
    /// Builds a source that gives one reason for every unknown value.
    pub fn because(why: impl Into<Unknown>) -> Self {
        Self(why.into())
    }
}

impl ValueSource for NoSource {
    fn register(&self, _register: u16) -> Result<u64, Unknown> {
        Err(self.0.clone())
    }

    fn vector(&self, _number: u16) -> Result<[u8; 16], Unknown> {
        Err(self.0.clone())
    }

    fn special(&self, _name: &str) -> Result<u64, Unknown> {
        Err(self.0.clone())
    }

    fn memory(&self, _at: u64, _out: &mut [u8]) -> Result<(), Unknown> {
        Err(self.0.clone())
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        Err(self.0.clone())
    }

    fn thread_pointer(&self) -> Result<(u64, Option<Avma>), Unknown> {
        Err(self.0.clone())
    }

    fn entry_value(&self, _register: u16) -> Result<u64, Unknown> {
        Err(self.0.clone())
    }
}
