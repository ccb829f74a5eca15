//! Heap events: calls of allocator functions in a trace, as values of PTW packets.
//!
//! A recording with heap events states the version of this format in its metadata
//! ([`Meta::heap_events`](crate::manifest::Meta::heap_events)). Without that statement, the values
//! in a trace are the program's own. Each value is a [`HeapWord`]: the low five bits are a code,
//! and the others the argument. An argument that needs more bits is the largest one.
//!
//! | code | argument |
//! |---|---|
//! | 0 | the block that the last call returned; 0 if it failed |
//! | 1 | the new size, after a call that also has a block (`realloc`) |
//! | 2 and up | a call of [`AllocatorFunction`]: its block, or else its size in bytes |
//!
//! The values are written while tracing is off between two instructions. A call has them before the
//! first instruction of the function, a result before the return. A call by another allocator
//! function has no values.

/// The version of the format of values in a trace that this crate writes and reads.
pub const VERSION: u64 = 1;
/// The version that says that the bundle has [`heap_records`](crate::heap_records) in place of
/// values in its trace.
pub const RECORDS: u64 = 2;

/// The number of low bits with the code.
const CODE_BITS: u32 = 5;
/// The code of a result.
const RESULT: u64 = 0;
/// The code of a size after a block.
const SIZE: u64 = 1;
/// The code of the first function.
const FIRST_FUNCTION: u64 = 2;

/// A function that allocates or frees blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AllocatorFunction {
    /// `malloc`.
    Malloc,
    /// `calloc`.
    Calloc,
    /// `realloc`.
    Realloc,
    /// `free`.
    Free,
    /// `aligned_alloc`.
    AlignedAlloc,
    /// `memalign`.
    Memalign,
    /// `posix_memalign`.
    PosixMemalign,
    /// `valloc`.
    Valloc,
    /// `pvalloc`.
    Pvalloc,
    /// `operator new`.
    New,
    /// `operator new[]`.
    NewArray,
    /// `operator delete`.
    Delete,
    /// `operator delete[]`.
    DeleteArray,
}

impl AllocatorFunction {
    /// All functions, by code.
    pub const ALL: [Self; 13] = [
        Self::Malloc,
        Self::Calloc,
        Self::Realloc,
        Self::Free,
        Self::AlignedAlloc,
        Self::Memalign,
        Self::PosixMemalign,
        Self::Valloc,
        Self::Pvalloc,
        Self::New,
        Self::NewArray,
        Self::Delete,
        Self::DeleteArray,
    ];

    /// Returns the name in source code.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Calloc => "calloc",
            Self::Realloc => "realloc",
            Self::Free => "free",
            Self::AlignedAlloc => "aligned_alloc",
            Self::Memalign => "memalign",
            Self::PosixMemalign => "posix_memalign",
            Self::Valloc => "valloc",
            Self::Pvalloc => "pvalloc",
            Self::New => "operator new",
            Self::NewArray => "operator new[]",
            Self::Delete => "operator delete",
            Self::DeleteArray => "operator delete[]",
        }
    }

    /// Returns the function of a symbol. C++ has several symbols for each operator.
    #[must_use]
    pub fn of_symbol(symbol: &str) -> Option<Self> {
        let operators = [
            ("_Znwm", Self::New),
            ("_Znam", Self::NewArray),
            ("_ZdlPv", Self::Delete),
            ("_ZdaPv", Self::DeleteArray),
        ];
        for (prefix, function) in operators {
            if let Some(arguments) = symbol.strip_prefix(prefix) {
                return is_operator_suffix(arguments).then_some(function);
            }
        }
        let mut functions = Self::ALL.into_iter();
        functions.find(|function| function.name() == symbol && !symbol.contains(' '))
    }

    /// Returns whether its argument is a block, which the call frees.
    #[must_use]
    pub fn takes_block(self) -> bool {
        matches!(
            self,
            Self::Realloc | Self::Free | Self::Delete | Self::DeleteArray
        )
    }

    /// Returns whether it returns a block.
    #[must_use]
    pub fn gives_block(self) -> bool {
        self == Self::Realloc || !self.takes_block()
    }
}

/// Returns whether these are mangled types of further arguments of an allocation operator: a size,
/// an alignment, `std::nothrow_t`.
fn is_operator_suffix(mut arguments: &str) -> bool {
    for argument in ["m", "St11align_val_t", "RKSt9nothrow_t"] {
        arguments = arguments.strip_prefix(argument).unwrap_or(arguments);
    }
    arguments.is_empty()
}

/// A value of a heap event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapWord {
    /// A call begins.
    Call {
        /// The called function.
        function: AllocatorFunction,
        /// The block that it frees or resizes, or else the size in bytes.
        argument: u64,
    },
    /// The new size of the block of the last call.
    Size(u64),
    /// The block that the last call returned; 0: it failed.
    Result(u64),
}

impl HeapWord {
    /// The largest argument, also of calls with a larger one.
    pub const MAX_ARGUMENT: u64 = u64::MAX >> CODE_BITS;

    /// Returns the value in the trace.
    #[must_use]
    pub fn encode(self) -> u64 {
        let (code, argument) = match self {
            Self::Result(block) => (RESULT, block),
            Self::Size(size) => (SIZE, size),
            Self::Call { function, argument } => (FIRST_FUNCTION + function as u64, argument),
        };
        argument.min(Self::MAX_ARGUMENT) << CODE_BITS | code
    }

    /// Returns the meaning of a value in a trace; `None`: the code is unknown.
    #[must_use]
    pub fn decode(value: u64) -> Option<Self> {
        let argument = value >> CODE_BITS;
        Some(match value & ((1 << CODE_BITS) - 1) {
            RESULT => Self::Result(argument),
            SIZE => Self::Size(argument),
            code => {
                let index = usize::try_from(code - FIRST_FUNCTION).ok()?;
                let function = *AllocatorFunction::ALL.get(index)?;
                Self::Call { function, argument }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let calls = AllocatorFunction::ALL.into_iter().map(|function| HeapWord::Call {
            function,
            argument: 0x7fff_1234_5670,
        });
        let others = [HeapWord::Size(77), HeapWord::Result(0), HeapWord::Result(1 << 47)];
        for word in calls.chain(others) {
            assert_eq!(HeapWord::decode(word.encode()), Some(word));
        }
        let huge = HeapWord::Size(u64::MAX);
        assert_eq!(
            HeapWord::decode(huge.encode()),
            Some(HeapWord::Size(HeapWord::MAX_ARGUMENT))
        );
    }

    #[test]
    fn unknown_codes_are_refused() {
        let codes = (0..1 << CODE_BITS).filter(|code| HeapWord::decode(*code).is_some());
        assert_eq!(codes.count(), 2 + AllocatorFunction::ALL.len());
    }

    #[test]
    fn symbols_of_operators_are_known() {
        let function = AllocatorFunction::of_symbol;
        assert_eq!(function("posix_memalign"), Some(AllocatorFunction::PosixMemalign));
        for symbol in ["_Znwm", "_ZnwmSt11align_val_tRKSt9nothrow_t"] {
            assert_eq!(function(symbol), Some(AllocatorFunction::New));
        }
        for symbol in ["_ZdaPv", "_ZdaPvm", "_ZdaPvmSt11align_val_t"] {
            assert_eq!(function(symbol), Some(AllocatorFunction::DeleteArray));
        }
        // Placement new, and a member function.
        for other in ["_ZnwmPv", "_ZN4PoolnwEm", "xmalloc", "operator new"] {
            assert_eq!(function(other), None, "{other}");
        }
    }
}
