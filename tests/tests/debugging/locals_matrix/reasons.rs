//! The reasons for which GDB shows another value: the rules of `docs/gdb.md`.

use super::builds::Source;
use super::compare::{Difference, INTERNAL_ERROR, LINE, NOT_LISTED};
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
        sentence: "GDB writes missing memory as an error that ends a slice, lengths of slices of Rust, counts of `Rc`, and Go's functions as C's",
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
                "<unknown: the caller's register was not saved>",
                "<unknown: the caller does not state this parameter>",
            ];
            it.gdb == OPTIMIZED_OUT && reasons.iter().any(|reason| it.ours.starts_with(reason))
        },
    },
    Reason {
        name: "recursive calls",
        sentence: "gcc describes the target of some recursive calls by a function without an address; GDB shows passed arguments as `<optimized out>`, and Backtrail their values",
        applies: |it| {
            let is_passed = match (it.name, it.ours.parse::<u32>()) {
                ("left", Ok(number)) => number % 2 == 0,
                ("right", Ok(number)) => number % 2 == 1,
                ("node", Ok(_)) => true,
                _ => false,
            };
            it.gdb == OPTIMIZED_OUT && it.frame.function == "depth_of" && is_passed
        },
    },
    Reason {
        name: "indirect calls",
        sentence: "GDB proves a passed argument by a register that held the target of the call; Backtrail shows `<unknown>`",
        applies: |it| {
            it.ours
                .starts_with("<unknown: the caller may have called another function")
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
        sentence: "GDB reads missing tags, lengths, pointers and bytes as zero; Backtrail shows `<optimized out>`",
        applies: |it| {
            let is_zero = match it.source() {
                Source::Rust => {
                    let zeros = ["::None", "(size=0)", "Cannot access memory at address 0x0)"];
                    zeros.iter().any(|zero| it.gdb.contains(zero))
                }
                Source::Cpp => it.ours.contains("_M_"),
                Source::C => it.gdb.contains(r"'\000' <repeats"),
                Source::Go => false,
            };
            it.ours.contains(OPTIMIZED_OUT) && is_zero
        },
    },
    Reason {
        name: "missing parts of numbers",
        sentence: "GDB reads the missing part of a complex number or of one of 128 bits as zero; Backtrail shows `<optimized out>`",
        applies: |it| {
            let has_parts = ["complex", "128"].iter().any(|part| it.ty.contains(part));
            has_parts && it.ours.contains(OPTIMIZED_OUT)
        },
    },
    Reason {
        name: "failing printers",
        sentence: "GDB's printers of library types fail with a missing piece, or with a type that clang omits; Backtrail shows what is known",
        applies: |it| it.gdb.contains("Python Exception"),
    },
    Reason {
        name: "before the declaration",
        sentence: "the memory of an object or argument of C++ is not set yet, and the debuggers interpret its bytes in different ways",
        applies: |it| {
            let declared = it.frame.declared.get(it.name).copied().unwrap_or(0);
            let is_set = declared < it.frame.line && !it.is_at_start_of_function();
            it.source() == Source::Cpp && !is_set && !is_number(&it.ours)
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
        sentence: "GDB shows bytes of Go as characters",
        applies: |it| it.source() == Source::Go && without_texts(&it.gdb) == without_texts(&it.ours),
    },
    Reason {
        name: "parts of Go",
        sentence: "before strings and slices of Go are set, Go's printers for GDB show nothing or fail; Backtrail shows the parts or some text",
        applies: |it| {
            let is_impossible = it.ours.starts_with("{array = ") && it.gdb.starts_with("[]");
            let is_unreadable = it
                .gdb
                .starts_with("<error reading variable: Cannot access memory");
            it.source() == Source::Go && (is_impossible || is_unreadable && it.ty == "struct string")
        },
    },
    Reason {
        name: "rejected expressions",
        sentence: "clang describes some locations by numbers of 128 bits and loads of 16 bytes; GDB shows an error, and Backtrail no value",
        applies: |it| {
            let errors = [
                "That operation is not available on integers of more than 8 bytes",
                "Incompatible types on DWARF stack",
                "invalid dwarf2 offset",
                "access outside bounds of object referenced via synthetic pointer",
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
        sentence: "GDB shows `<invalid float value>` for bytes that are no `long double`, and tiny numbers; Backtrail shows `<unknown>`",
        applies: |it| {
            let (ours, gdb) = (
                normalized(&it.ours, it.source()),
                normalized(&it.gdb, it.source()),
            );
            let known: Vec<String> = ours
                .split("<unknown: it has more digits than are supported>")
                .map(regex::escape)
                .collect();
            let pattern = format!("^{}$", known.join("(?:<invalid float value>|[-+.e0-9]+)"));
            known.len() > 1 && Regex::new(&pattern).is_ok_and(|pattern| pattern.is_match(&gdb))
        },
    },
    Reason {
        name: "omitted bases",
        sentence: "compilers omit the types of some bases; GDB shows no fields, and Backtrail `<incomplete type>`",
        applies: |it| {
            it.ours != it.gdb && it.ours.replace("<incomplete type>", "{<No data fields>}") == it.gdb
        },
    },
    Reason {
        name: "internal errors",
        sentence: "GDB 13 ends with an internal error in some frames of optimized Rust, which are not compared",
        applies: |it| it.name == INTERNAL_ERROR && it.source() == Source::Rust,
    },
    Reason {
        name: "unset bounds",
        sentence: "the bound of an array of variable length is not set yet; GDB refuses the size or shows an address, and Backtrail shows elements",
        applies: |it| {
            let is_empty = it.ours == "{}" && it.gdb.starts_with("0x");
            it.gdb.contains("which is more than max-value-size") || is_empty && it.ty.contains("[0]")
        },
    },
    Reason {
        name: "lines at one address",
        sentence: "of several lines that begin at one address, GDB shows one that begins a statement, and Backtrail the last",
        applies: |it| it.name == LINE && it.frame.beginning.iter().any(|line| line.to_string() == it.ours),
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
    let part = r#"(?:"(?:[^"\\]|\\.)*"(?:\.\.\.)?|'(?:[^'\\]|\\.)*'(?: <repeats \d+ times>)?(?:\.\.\.)?|<incomplete sequence [^>]*>|<error: Cannot access memory at address [^>]*>)"#;
    Regex::new(&format!("([0-9a-f>]) {part}(?:, {part})*")).unwrap()
});

fn without_symbols(text: &str) -> String {
    SYMBOL.replace_all(text, "<>").into_owned()
}

fn without_texts(text: &str) -> String {
    TEXT.replace_all(text, "$1").into_owned()
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}
