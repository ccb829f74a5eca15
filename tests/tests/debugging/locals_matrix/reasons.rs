//! The reasons for which GDB shows another value: the rules of `docs/gdb.md`.

use super::builds::Source;
use super::compare::{Difference, LINE, NOT_LISTED};
use super::normalize::normalized;
use regex::Regex;
use std::sync::LazyLock;

/// A reason.
pub struct Reason {
    /// The name in the documentation.
    pub name: &'static str,
    /// The sentence in the documentation.
    pub sentence: &'static str,
    /// Returns whether the reason explains a difference.
    pub applies: fn(&Difference<'_>) -> bool,
}

/// GDB's text of a value without a location.
const OPTIMIZED_OUT: &str = "<optimized out>";

/// All reasons. The first one that applies is counted.
pub const REASONS: &[Reason] = &[
    Reason {
        name: "wording",
        sentence: "GDB writes missing memory as an error, slices of Rust with their length, and `Rc` with its counts",
        applies: |it| normalized(&it.ours, it.source()) == normalized(&it.gdb, it.source()),
    },
    Reason {
        name: "saved registers",
        sentence: "GDB shows the current content of a register that a call may have changed; Backtrail shows `<unknown>`",
        applies: |it| {
            let reasons = [
                "the saved register was not found",
                "calls do not preserve vector registers",
            ];
            reasons.iter().any(|reason| it.ours.contains(reason))
        },
    },
    Reason {
        name: "passed arguments",
        sentence: "the value at the entry of the function is needed; GDB shows `<optimized out>`, and Backtrail the reason",
        applies: |it| {
            let reasons = [
                "<unknown: the debug information of the caller does not describe the argument>",
                "<unknown: the caller may have called another function",
            ];
            it.gdb == OPTIMIZED_OUT && reasons.iter().any(|reason| it.ours.starts_with(reason))
        },
    },
    Reason {
        name: "arguments from memory",
        sentence: "GDB reads the memory from which an argument came; Backtrail shows `<unknown>`, because the memory may have changed",
        applies: |it| {
            it.ours
                .contains("the argument came from memory, which may have changed")
        },
    },
    Reason {
        name: "no frame yet",
        sentence: "before a function sets up its frame pointer, GDB reads the frame of the caller; Backtrail shows `<unknown>`",
        applies: |it| {
            it.ours
                .contains("<unknown: the function's frame base is not stated, or not set up yet>")
        },
    },
    Reason {
        name: "variables of the compiler",
        sentence: "GDB lists variables that the compiler made for itself, such as `__range1`",
        applies: |it| it.ours == NOT_LISTED && it.name.starts_with("__"),
    },
    Reason {
        name: "variables of other blocks",
        sentence: "GDB lists variables of blocks that do not contain the instruction as `<optimized out>`",
        applies: |it| it.ours == NOT_LISTED && it.gdb == OPTIMIZED_OUT,
    },
    Reason {
        name: "missing pieces",
        sentence: "GDB writes a missing piece of a value as `<synthetic pointer>`; Backtrail writes `<optimized out>`",
        applies: |it| {
            // The value without bytes is a missing piece for GDB, too.
            let common = |text: &str| {
                let text = text.replace(OPTIMIZED_OUT, "<synthetic pointer>");
                normalized(&text.replace(": ()", ": <synthetic pointer>"), it.source())
            };
            it.ours.contains(OPTIMIZED_OUT) && common(&it.ours) == common(&it.gdb)
        },
    },
    Reason {
        name: "missing tags",
        sentence: "GDB reads a missing tag, length or pointer of a library type as zero; Backtrail shows `<optimized out>`",
        applies: |it| {
            let is_zero = match it.source() {
                Source::Rust => it.gdb.ends_with("::None") || it.gdb.contains("(size=0)"),
                _ => it.ours.contains("_M_"),
            };
            it.ours.contains(OPTIMIZED_OUT) && is_zero
        },
    },
    Reason {
        name: "missing parts of numbers",
        sentence: "GDB reads the missing part of a complex number as zero; Backtrail shows `<optimized out>`",
        applies: |it| it.ty.contains("complex") && it.ours == OPTIMIZED_OUT,
    },
    Reason {
        name: "failing printers",
        sentence: "GDB's printers of library types fail with a missing piece, or with a type that clang omits; Backtrail shows what is known",
        applies: |it| it.gdb.contains("Python Exception"),
    },
    Reason {
        name: "before the declaration",
        sentence: "the memory of an object of C++ is not set yet, and the debuggers interpret its bytes in different ways",
        applies: |it| {
            let declared = it.frame.declared.get(it.name).copied().unwrap_or(0);
            it.source() == Source::Cpp && declared >= it.frame.line && !is_number(&it.ours)
        },
    },
    Reason {
        name: "after the destruction",
        sentence: "objects of C++ are destroyed at the end of their block; the debuggers interpret freed memory in different ways",
        applies: |it| it.source() == Source::Cpp && it.is_at_end_of_block() && !is_number(&it.ours),
    },
    Reason {
        name: "pointers to members",
        sentence: "GDB shows a pointer to no member as a number; Backtrail adds `bytes into` and the class",
        applies: |it| {
            it.ours
                .split_once(" bytes into ")
                .is_some_and(|(number, _)| number == it.gdb)
        },
    },
    Reason {
        name: "names with dots",
        sentence: "GDB decodes symbols with dots as names of Ada; Backtrail shows the symbol",
        applies: |it| without_symbols(&it.ours) == without_symbols(&it.gdb) && it.ours.contains('.'),
    },
    Reason {
        name: "bytes of Go",
        sentence: "without its support of Go, GDB shows bytes as characters and strings without their end",
        applies: |it| it.source() == Source::Go && without_texts(&it.gdb) == it.ours,
    },
    Reason {
        name: "rejected expressions",
        sentence: "clang describes some locations by numbers of 128 bits and loads of 16 bytes; GDB shows an error, and Backtrail no value",
        applies: |it| {
            let errors = [
                "That operation is not available on integers of more than 8 bytes",
                "Incompatible types on DWARF stack",
                "invalid dwarf2 offset",
                "Asked for position 0 of stack",
            ];
            let is_missing = it.ours.contains(OPTIMIZED_OUT) || it.ours.contains("<unknown: ");
            is_missing && errors.iter().any(|error| it.gdb.contains(error))
        },
    },
    Reason {
        name: "small locations",
        sentence: "clang describes an array or object by one number; GDB fills the rest with zeros or unrelated memory, and Backtrail shows `<unknown>`",
        applies: |it| {
            let reasons = [
                "its location is smaller than its type",
                "a piece is larger than its location",
            ];
            reasons.iter().any(|reason| it.ours.contains(reason))
        },
    },
    Reason {
        name: "missing bounds",
        sentence: "the bound of an array of variable length is optimized out; GDB shows an address, and Backtrail the reason",
        applies: |it| {
            let reason = "<unknown: the number of elements is not known: optimized out>";
            it.ours == reason && it.gdb.starts_with("0x")
        },
    },
    Reason {
        name: "invalid numbers",
        sentence: "GDB shows `<invalid float value>` for bytes that are no `long double`; Backtrail shows `<unknown>`",
        applies: |it| {
            let unknown = "<unknown: it has more digits than are supported>";
            it.ours.contains(unknown) && it.ours.replace(unknown, "<invalid float value>") == it.gdb
        },
    },
    Reason {
        name: "code without a line",
        sentence: "GDB shows the previous line for code of line 0; Backtrail shows no line",
        applies: |it| it.name == LINE && it.ours == "0",
    },
];

/// A symbol after an address.
static SYMBOL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<[^<> ]+>").unwrap());
/// Characters and texts after a number, as GDB writes them.
static TEXT: LazyLock<Regex> = LazyLock::new(|| {
    let part = r#"(?:"(?:[^"\\]|\\.)*"(?:\.\.\.)?|'(?:[^'\\]|\\.)*'(?: <repeats \d+ times>)?(?:\.\.\.)?|<incomplete sequence [^>]*>)"#;
    Regex::new(&format!(" {part}(?:, {part})*")).unwrap()
});

fn without_symbols(text: &str) -> String {
    SYMBOL.replace_all(text, "<>").into_owned()
}

fn without_texts(text: &str) -> String {
    TEXT.replace_all(text, "").into_owned()
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}
