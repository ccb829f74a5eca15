//! The errors of making and reading indexes.

/// The reason why an index could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No function has a name.
    #[error("the file names no function; pass a file with debug information or a symbol table")]
    NoFunctions,
    /// The debug information refers to its data more often than genuine files do.
    #[error("the debug information needs more work than its size allows; link the program again")]
    ExceedsLimits,
    /// A GSYM cannot store the symbols.
    #[error("the symbols do not fit into a GSYM ({0}); split the program into libraries")]
    Unrepresentable(#[source] gsym::Error),
    /// The types cannot be stored.
    #[error("the types of {0} functions do not fit into an index; split the program into libraries")]
    TooManyTypes(usize),
    /// The compression failed.
    #[error("the types cannot be compressed ({0}); free some memory and try again")]
    Compression(#[source] std::io::Error),
    /// The GSYM of an index is damaged.
    #[error("the GSYM of the index is damaged ({0}); make the index again")]
    Gsym(#[source] gsym::Error),
    /// A file of an index is damaged.
    #[error("the index is damaged ({0}); make the index again")]
    Damaged(&'static str),
}
