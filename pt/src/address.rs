//! Address spaces, one type each, so that no two can be mixed up.

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
            /// The distance in bytes; wraps at 2^64.
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
    /// Actual virtual memory address: where the byte was in the traced process.
    Avma
}
address_space! {
    /// Stated virtual memory address: where the ELF file's program headers put the byte.
    Svma
}
address_space! {
    /// Byte offset from the start of a file.
    FileOffset
}

impl Svma {
    /// The actual address of this stated one in a module loaded with `bias` (actual − stated, mod 2^64).
    #[must_use]
    pub fn to_avma(self, bias: u64) -> Avma {
        Avma(self.0.wrapping_add(bias))
    }
}

impl Avma {
    /// The stated address of this actual one in a module loaded with `bias` (actual − stated, mod 2^64).
    #[must_use]
    pub fn to_svma(self, bias: u64) -> Svma {
        Svma(self.0.wrapping_sub(bias))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bias_converts_there_and_back_over_the_wrap() {
        let bias = 0u64.wrapping_sub(0x1000);
        let avma = Svma(0x40_0000).to_avma(bias);
        assert_eq!(avma, Avma(0x3f_f000));
        assert_eq!(avma.to_svma(bias), Svma(0x40_0000));
    }
}
