//! Address types, one for each address space, so that they cannot be confused.

use std::fmt;
use std::ops::{Add, Sub};

macro_rules! address_space {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl Add<u64> for $name {
            type Output = Self;
            /// Wraps at 2^64, as addresses do.
            fn add(self, bytes: u64) -> Self {
                Self(self.0.wrapping_add(bytes))
            }
        }

        impl Sub<$name> for $name {
            type Output = u64;
            /// Returns the distance in bytes; wraps at 2^64.
            fn sub(self, other: Self) -> u64 {
                self.0.wrapping_sub(other.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address_space! {
    /// Actual virtual memory address: the address of a byte in the traced process.
    Avma
}
address_space! {
    /// Stated virtual memory address: the address of a byte in the program headers of the ELF file.
    Svma
}
address_space! {
    /// Byte offset from the start of a file.
    FileOffset
}

impl Svma {
    /// Returns the actual address in a module loaded with `bias` (actual − stated, mod 2^64).
    #[must_use]
    pub fn to_avma(self, bias: u64) -> Avma {
        Avma(self.0.wrapping_add(bias))
    }
}

impl Avma {
    /// Returns the stated address in a module loaded with `bias` (actual − stated, mod 2^64).
    #[must_use]
    pub fn to_svma(self, bias: u64) -> Svma {
        Svma(self.0.wrapping_sub(bias))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bias_conversion_round_trips_across_wraparound() {
        let bias = 0u64.wrapping_sub(0x1000);
        let avma = Svma(0x40_0000).to_avma(bias);
        assert_eq!(avma, Avma(0x3f_f000));
        assert_eq!(avma.to_svma(bias), Svma(0x40_0000));
    }
}
