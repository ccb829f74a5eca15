//! Reads registers.
//!
//! At the end of a thread that the core has, the registers of the innermost frame are exact. Those
//! of its callers come from call frame information. Before the end, registers are recovered from
//! the code.

use crate::error::Result;
use crate::evaluation::selected_frame;
use crate::navigator::Navigator;
use backtrail_decoder::Watch;
use serde::Serialize;

/// A register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Register {
    /// As GDB calls it.
    pub name: String,
    /// `None`: unknown, or 128 bits.
    pub value: Option<u64>,
    /// Those of a vector register, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vector: Option<String>,
    /// The reason why it is unknown.
    pub unknown: Option<String>,
    /// Before the crash, what it is known from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// As GDB orders them; its `eflags` is the kernel's `rflags`.
const NAMES: [&str; 26] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs", "fs_base", "gs_base",
];

/// Their numbers in DWARF, in the same order; those without are of the processor's state.
const NUMBERS: [u16; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Returns the registers of the selected frame without vector registers, with the values of `print
/// $rbx`.
///
/// # Errors
///
/// If the frame depends on history that is not decoded yet; when canceled.
pub fn general(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<Register>> {
    let frame = selected_frame::selected(navigator, watch)?;
    let of = |(at, name): (usize, &&str)| {
        let value = match (NUMBERS.get(at), *name) {
            (Some(&number), _) => frame.source.register(number).map_err(|why| why.to_string()),
            (None, "rip") => frame
                .pc
                .ok_or_else(|| "the position of the thread is unknown".to_owned()),
            (None, name) => frame.source.special(name).map_err(|why| why.to_string()),
        };
        Register {
            name: (*name).to_owned(),
            value: value.as_ref().ok().copied(),
            vector: None,
            unknown: value.err(),
            origin: frame.source.origins().into_iter().next(),
        }
    };
    Ok(NAMES.iter().enumerate().map(of).collect())
}

/// The lower 128 bits of the vector registers of the selected frame, as `print $xmm0` knows them.
///
/// # Errors
/// As [`general`].
pub fn vectors(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<Register>> {
    let frame = selected_frame::selected(navigator, watch)?;
    let of = |number| {
        let value = frame.source.vector(number);
        Register {
            name: format!("xmm{number}"),
            value: None,
            vector: (value.as_ref().ok()).map(|&bytes| format!("{:#034x}", u128::from_le_bytes(bytes))),
            unknown: value.err().map(|why| why.to_string()),
            origin: frame.source.origins().into_iter().next(),
        }
    };
    Ok((0..16).map(of).collect())
}
