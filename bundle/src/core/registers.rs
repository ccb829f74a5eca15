//! The general registers of a thread.

use backtrail_pt::Avma;

/// The general registers in the order of `struct user_regs_struct` (`asm/user_64.h`).
/// `PTRACE_GETREGS` and `pr_reg` in a core use the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// The number of registers.
pub(super) const COUNT: usize = 27;

/// Defines the names of the registers and both conversions from one list.
macro_rules! registers {
    ($($name:ident)*) => {
        impl Registers {
            /// The registers' names, in the order of [`Self::to_array`].
            pub const NAMES: [&str; COUNT] = [$(stringify!($name)),*];

            /// Builds the registers from the words of `struct user_regs_struct`.
            #[must_use]
            pub fn from_array([$($name),*]: [u64; COUNT]) -> Self {
                Self { $($name),* }
            }

            /// Returns the words of `struct user_regs_struct`.
            #[must_use]
            pub fn to_array(&self) -> [u64; COUNT] {
                [$(self.$name),*]
            }
        }
    };
}

registers! {
    r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs rflags rsp ss
    fs_base gs_base ds es fs gs
}

impl Registers {
    /// Returns the instruction pointer.
    #[must_use]
    pub fn pc(&self) -> Avma {
        Avma(self.rip)
    }
}
