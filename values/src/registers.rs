//! `$rip` and its like as values of the selected frame.

use super::context::EvalContext;
use super::failure::{Evaluated, wrong};
use super::types::Ty;
use super::value::{Unavailable, Value};
use backtrail_symbolizer::types::Encoding;
use std::sync::Arc;

/// The general registers by their DWARF numbers, each with the names of its low 4, 2 and 1 bytes.
const GENERAL: [[&str; 4]; 16] = [
    ["rax", "eax", "ax", "al"],
    ["rdx", "edx", "dx", "dl"],
    ["rcx", "ecx", "cx", "cl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsp", "esp", "", "spl"],
    ["r8", "r8d", "r8w", "r8l"],
    ["r9", "r9d", "r9w", "r9l"],
    ["r10", "r10d", "r10w", "r10l"],
    ["r11", "r11d", "r11w", "r11l"],
    ["r12", "r12d", "r12w", "r12l"],
    ["r13", "r13d", "r13w", "r13l"],
    ["r14", "r14d", "r14w", "r14l"],
    ["r15", "r15d", "r15w", "r15l"],
];

/// GDB's name of the flags type.
pub const FLAGS: &str = "i386_eflags";

/// The processor's name of a register that GDB has another one for, too.
pub fn plain(name: &str) -> &str {
    match name {
        "pc" => "rip",
        "sp" => "rsp",
        "fp" => "rbp",
        other => other,
    }
}

impl EvalContext<'_> {
    pub(crate) fn register(&self, name: &str) -> Evaluated {
        let plain = plain(name);
        if plain == "rip" {
            let ty = Ty::Function(Arc::new(Ty::Void)).pointer();
            return Ok(match self.pc {
                Some(pc) => Value::number(ty, i128::from(pc)),
                None => Value::unavailable(
                    ty,
                    Unavailable::Unknown("the position of the thread is unknown".into()),
                ),
            });
        }
        let found = (0..).zip(&GENERAL).find_map(|(number, names)| {
            let width = names.iter().position(|known| *known == plain)?;
            Some((number, width))
        });
        if let Some((number, width)) = found {
            let ty = match width {
                0 if matches!(plain, "rsp" | "rbp") => Ty::Void.pointer(),
                0 => Ty::long(),
                1 => Ty::int(),
                2 => Ty::base("short", 2, Encoding::Signed),
                _ => Ty::base("int8_t", 1, Encoding::Signed),
            };
            return Ok(match self.source.register(number) {
                Ok(value) => Value::number(ty, i128::from(value)),
                Err(why) => Value::unavailable(ty, why.into()),
            });
        }
        let vector = plain.strip_prefix("xmm").and_then(|number| number.parse().ok());
        if let Some(number) = vector.filter(|number| *number < 16) {
            // GDB's has a member for each way to read it; this is the one that loses nothing.
            let ty = Ty::base("uint128_t", 16, Encoding::Unsigned);
            return Ok(match self.source.vector(number) {
                Ok(bytes) => Value::number(ty, i128::from_le_bytes(bytes)),
                Err(why) => Value::unavailable(ty, why.into()),
            });
        }
        let ty = match plain {
            "eflags" => Ty::base(FLAGS, 4, Encoding::Unsigned),
            "fs_base" | "gs_base" => Ty::long(),
            "cs" | "ss" | "ds" | "es" | "fs" | "gs" => Ty::int(),
            "hits" | "caller" | "thread" | "_thread" | "duration" | "instructions" => {
                return wrong(format!(
                    "\"${name}\" is for breakpoint conditions only: compare it with a constant, as in `${name} == …`, joined by &&"
                ));
            }
            _ => {
                return wrong(format!(
                    "\"${name}\" is not a register; `info registers` lists the registers"
                ));
            }
        };
        Ok(match self.source.special(plain) {
            Ok(value) => Value::number(ty, i128::from(value)),
            Err(why) => Value::unavailable(ty, why.into()),
        })
    }
}

/// `[ ZF PF ]` for the flags register.
pub fn flags(value: u64) -> String {
    const NAMES: [(u32, &str); 17] = [
        (0, "CF"),
        (1, ""),
        (2, "PF"),
        (4, "AF"),
        (6, "ZF"),
        (7, "SF"),
        (8, "TF"),
        (9, "IF"),
        (10, "DF"),
        (11, "OF"),
        (14, "NT"),
        (16, "RF"),
        (17, "VM"),
        (18, "AC"),
        (19, "VIF"),
        (20, "VIP"),
        (21, "ID"),
    ];
    let set = NAMES
        .iter()
        .filter(|(bit, name)| value >> bit & 1 == 1 && !name.is_empty());
    let names: String = set.map(|(_, name)| format!("{name} ")).collect();
    format!("[ {names}]")
}

#[cfg(test)]
mod tests {
    use super::flags;

    #[test]
    fn flags_have_names() {
        assert_eq!(flags(0x10246), "[ PF ZF IF RF ]");
        assert_eq!(flags(2), "[ ]");
    }
}
