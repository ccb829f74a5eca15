//! The memory that a model reads and writes, and the reasons for which a model stops.

/// Memory by address. A model asks for its bytes in the order in which the processor reads them.
pub trait Memory {
    /// The reason for which bytes are unknown.
    type Error;

    /// Fills `bytes` with the memory at an address.
    ///
    /// # Errors
    /// Fails if a byte is unknown. The model then changes neither registers nor memory, except for
    /// the finished elements of a repeated string instruction.
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Notes that bytes are stored at an address.
    ///
    /// # Errors
    /// Fails if nothing can be stored there.
    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// The reason for which a model stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop<E> {
    /// Memory is unknown.
    #[error("memory is unknown: {0}")]
    Memory(E),
    /// A flag or a result that the manual leaves undefined would decide.
    #[error("the result depends on a value that the manual leaves undefined")]
    Undefined,
    /// The quotient of a division does not exist, or has no place.
    #[error("the division has no result")]
    Division,
    /// MXCSR asks for another rounding or for denormals as zero.
    #[error("the rounding mode is not the default")]
    Rounding,
}

/// A memory without bytes, for instructions that use registers alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemory;

impl Memory for NoMemory {
    type Error = NoBytes;

    fn load(&mut self, _address: u64, _bytes: &mut [u8]) -> Result<(), NoBytes> {
        Err(NoBytes)
    }

    fn store(&mut self, _address: u64, _bytes: &[u8]) -> Result<(), NoBytes> {
        Err(NoBytes)
    }
}

/// The error of [`NoMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory")]
pub struct NoBytes;
