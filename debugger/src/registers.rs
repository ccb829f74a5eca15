//! Registers: exact at the end of a thread that the core has, unknown before.

use crate::navigator::Navigator;
use serde::Serialize;

/// A register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Register {
    /// As GDB calls it.
    pub name: String,
    /// `None`: unknown.
    pub value: Option<u64>,
    /// Why it is unknown.
    pub unknown: Option<String>,
}

/// As GDB orders them; its `eflags` is the kernel's `rflags`.
const NAMES: [&str; 26] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs", "fs_base", "gs_base",
];

/// All registers at the current position.
#[must_use]
pub fn all(navigator: &Navigator) -> Vec<Register> {
    NAMES.iter().map(|name| register(navigator, name)).collect()
}

fn register(navigator: &Navigator, name: &str) -> Register {
    let known = |value| Register {
        name: name.to_owned(),
        value: Some(value),
        unknown: None,
    };
    let unknown = |why: String| Register {
        name: name.to_owned(),
        value: None,
        unknown: Some(why),
    };
    let tid = navigator.position().tid();
    let selected = navigator.selected_frame() != 0;
    if navigator.is_at_end()
        && !selected
        && let Some(registers) = navigator.session().end_registers(tid)
    {
        let names = backtrail_bundle::core::Registers::NAMES;
        let kernel_name = if name == "eflags" { "rflags" } else { name };
        let found = names.iter().position(|known| *known == kernel_name);
        let value = found.and_then(|at| registers.to_array().get(at).copied());
        return value.map_or_else(|| unknown("the core does not have it".to_owned()), known);
    }
    match name {
        "rip" if !selected => match navigator.pc() {
            Some(pc) => known(pc.0),
            None => unknown("the trace ends without saying where".to_owned()),
        },
        _ if selected => unknown("the frame's caller did not save it where the trace can see".to_owned()),
        _ if navigator.is_at_end() => unknown("there is no core with the state of this thread".to_owned()),
        _ => unknown("a trace records control flow, not values; they are known at the crash only".to_owned()),
    }
}
