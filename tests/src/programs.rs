//! The table of example programs under `tests/fixtures/programs/`: how each is built and how it
//! ends.
//!
//! The first lines of each source describe what the program exercises.

use std::ffi::OsString;
use std::path::Path;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name: the source's file name without extension.
    pub name: &'static str,
    /// The source's file name in `tests/fixtures/programs/`.
    pub source: &'static str,
    /// Compiler flags in addition to those of the language and the variant.
    pub flags: &'static [&'static str],
    /// The link variants; the first is the default, the last runs the fewest instructions.
    pub variants: &'static [Variant],
    /// How a run ends.
    pub ending: Ending,
    /// Whether two runs of one build, without address randomization, execute the same instructions.
    pub deterministic: bool,
}

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// Position-independent, with shared libraries.
    Pie,
    /// At a fixed address, with shared libraries.
    NoPie,
    /// At a fixed address, without shared libraries (Rust: static PIE).
    Static,
    /// Position-independent, without shared libraries.
    StaticPie,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Exits with this status.
    Exit(i32),
    /// Is killed by this signal number.
    Signal(i32),
}

/// The language of a source, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C, built with `cc`.
    C,
    /// C++, built with `c++`.
    Cpp,
    /// Assembly for the C preprocessor and `as`, without the C library.
    Assembly,
    /// Rust, built with `rustc`.
    Rust,
}

impl Program {
    /// Returns the language of the source.
    #[must_use]
    pub fn language(&self) -> Language {
        match self.source.rsplit('.').next() {
            Some("rs") => Language::Rust,
            Some("cpp") => Language::Cpp,
            Some("S") => Language::Assembly,
            _ => Language::C,
        }
    }

    /// Returns the command that runs the program at `path`. A panic of a Rust program prints no
    /// backtrace, because a backtrace reads all debug information, which takes minutes in single
    /// steps.
    #[must_use]
    pub fn command(&self, path: &Path) -> Vec<OsString> {
        let mut command: Vec<OsString> = match self.language() {
            Language::Rust => vec!["env".into(), "RUST_BACKTRACE=0".into()],
            Language::C | Language::Cpp | Language::Assembly => Vec::new(),
        };
        command.push(path.into());
        command
    }

    /// Returns whether a run ends in a fatal signal, and so in a bundle with a crash.
    #[must_use]
    pub fn crashes(&self) -> bool {
        matches!(self.ending, Ending::Signal(_))
    }
}

impl Variant {
    /// Returns the variant's name in file names and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pie => "pie",
            Self::NoPie => "nopie",
            Self::Static => "static",
            Self::StaticPie => "static-pie",
        }
    }
}

/// Returns the program of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

const ALL: &[Variant] = &[Variant::Pie, Variant::NoPie, Variant::Static];
/// Variants of programs that throw. In a static program at a fixed address, the first throw sorts
/// the frames of the whole program, which takes millions of instructions. For a PIE, the unwinder
/// reads the table of the linker.
const UNWINDING: &[Variant] = &[Variant::Pie, Variant::NoPie, Variant::Static, Variant::StaticPie];
/// Variants of programs that end a thread, for which the C library loads the unwinder. A static
/// program then loads a second C library, which takes millions of instructions.
const ENDING: &[Variant] = &[Variant::Pie, Variant::Static, Variant::NoPie];
const DYNAMIC: &[Variant] = &[Variant::Pie, Variant::NoPie];
const STATIC: &[Variant] = &[Variant::Static];
const RUST: &[Variant] = &[Variant::Pie, Variant::Static];

const SIGILL: i32 = 4;
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SIGSYS: i32 = 31;

const OK: Ending = Ending::Exit(0);

const fn program(
    name: &'static str,
    source: &'static str,
    flags: &'static [&'static str],
    variants: &'static [Variant],
    ending: Ending,
) -> Program {
    Program {
        name,
        source,
        flags,
        variants,
        ending,
        deterministic: true,
    }
}

/// A program whose instructions depend on the scheduler or a clock.
const fn timed(program: Program) -> Program {
    Program {
        deterministic: false,
        ..program
    }
}

/// Every program, the two demos first.
#[rustfmt::skip]
pub const PROGRAMS: &[Program] = &[
    program("ledger", "ledger.c", &["-Og"], ALL, Ending::Signal(SIGSEGV)),
    program("lease", "lease.rs", &["-Cpanic=abort"], RUST, Ending::Signal(SIGABRT)),
    program("exits", "exits.c", &["-O1"], ALL, Ending::Exit(7)),
    program("recursion", "recursion.c", &["-O1"], ALL, OK),
    program("tailcall", "tailcall.c", &["-O2"], ALL, OK),
    program("lazy", "lazy.c", &["-O1", "-Wl,-z,lazy"], DYNAMIC, OK),
    program("dispatch", "dispatch.c", &["-O1"], ALL, OK),
    program("rep", "rep.c", &["-O1"], ALL, OK),
    program("longjmp", "longjmp.c", &["-O1"], ALL, OK),
    program("exception", "exception.cpp", &["-O1"], UNWINDING, OK),
    program("terminate", "terminate.cpp", &["-O1"], UNWINDING, Ending::Signal(SIGABRT)),
    program("unwind", "unwind.rs", &["-Copt-level=1"], RUST, OK),
    program("inlined", "inlined.cpp", &["-O2"], ALL, Ending::Signal(SIGSEGV)),
    program("sigaltstack", "sigaltstack.c", &["-O1"], ALL, OK),
    timed(program("syscall_signal", "syscall_signal.c", &["-O1"], ALL, OK)),
    timed(program("fork", "fork.c", &["-O1"], ALL, OK)),
    timed(program("threads", "threads.c", &["-O1", "-pthread"], ALL, OK)),
    timed(program("thread_crash", "thread_crash.c", &["-O1", "-pthread"], ALL, Ending::Signal(SIGSEGV))),
    program("crash_null", "crash_null.c", &["-O1"], ALL, Ending::Signal(SIGSEGV)),
    program("crash_jump", "crash_jump.c", &["-O1"], ALL, Ending::Signal(SIGSEGV)),
    program("crash_abort", "crash_abort.c", &["-O1"], ALL, Ending::Signal(SIGABRT)),
    program("crash_bus", "crash_bus.c", &["-O1"], ALL, Ending::Signal(SIGBUS)),
    program("crash_free", "crash_free.c", &["-O1", "-fno-builtin"], ALL, Ending::Signal(SIGABRT)),
    program("crash_ud2", "crash_ud2.c", &["-O1"], ALL, Ending::Signal(SIGILL)),
    program("crash_div", "crash_div.c", &["-O1"], ALL, Ending::Signal(SIGFPE)),
    program("crash_stack", "crash_stack.c", &["-O1"], ALL, Ending::Signal(SIGSEGV)),
    program("crash_compare", "crash_compare.c", &["-O2", "-fomit-frame-pointer", "-fno-builtin"], ALL, Ending::Signal(SIGSEGV)),
    program("crash_handler", "crash_handler.c", &["-O1"], ALL, Ending::Signal(SIGSEGV)),
    program("crash_again", "crash_again.c", &["-O1"], ALL, Ending::Signal(SIGSEGV)),
    program("contexts", "contexts.c", &["-O0"], STATIC, OK),
    program("made", "made.c", &["-O0"], ALL, Ending::Signal(SIGSEGV)),
    program("made_inside", "made.c", &["-O0", "-DINSIDE"], ALL, Ending::Signal(SIGILL)),
    program("crash_late", "crash_late.c", &["-O2", "-fomit-frame-pointer"], ALL, Ending::Signal(SIGSEGV)),
    program("crash_smash", "crash_smash.c", &["-O1", "-fno-stack-protector"], ALL, Ending::Signal(SIGSEGV)),
    timed(program("requests", "requests.c", &["-O1", "-fno-inline", "-fno-optimize-sibling-calls"], ALL, OK)),
    timed(program("request_context", "request_context.c", &["-O1", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"], UNWINDING, Ending::Signal(SIGSEGV))),
    timed(program("request_context_rust", "request_context_rust.rs", &["-Cpanic=abort", "-Clink-arg=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"], RUST, Ending::Signal(SIGABRT))),
    program("values", "values.c", &["-O0"], ALL, Ending::Signal(SIGSEGV)),
    program("values_optimized", "values.c", &["-O2"], ALL, Ending::Signal(SIGSEGV)),
    timed(program("leader_ends", "leader_ends.c", &["-O1", "-pthread"], ENDING, Ending::Signal(SIGSEGV))),
    program("not_executable", "not_executable.c", &["-O1", "-DHERE"], ALL, Ending::Signal(SIGSEGV)),
    program("unmapped_behind", "not_executable.c", &["-O1"], ALL, OK),
    program("skipped", "skipped.c", &["-O1"], ALL, Ending::Signal(SIGSEGV)),
    program("forbidden", "forbidden.c", &["-O1"], ALL, Ending::Signal(SIGSYS)),
    program("fields", "fields.c", &["-O2", "-fno-ipa-cp", "-fno-ipa-sra"], STATIC, Ending::Signal(SIGSEGV)),
    program("containers", "containers.cpp", &["-O0", "-std=c++17"], ALL, Ending::Signal(SIGSEGV)),
    program("wide", "wide.cpp", &["-O0", "-std=c++20"], ALL, Ending::Signal(SIGSEGV)),
    program("wide_c", "wide_c.c", &["-O0"], ALL, Ending::Signal(SIGSEGV)),
    program("classes", "classes.cpp", &["-O0", "-std=c++17"], ALL, Ending::Signal(SIGSEGV)),
    timed(program("owned", "owned.rs", &["-Cpanic=abort"], RUST, Ending::Signal(SIGABRT))),
    program("lets", "lets.rs", &["-Cpanic=abort"], RUST, Ending::Signal(SIGSEGV)),
    program("orders", "orders.rs", &["-Cpanic=abort"], RUST, Ending::Signal(SIGABRT)),
    program("verbs", "verbs.c", &["-O0"], STATIC, Ending::Signal(SIGSEGV)),
    program("verbs_optimized", "verbs.c", &["-O2"], STATIC, Ending::Signal(SIGSEGV)),
    program("shapes", "shapes.cpp", &["-O0"], STATIC, Ending::Signal(SIGSEGV)),
    program("shapes_optimized", "shapes.cpp", &["-O2"], STATIC, Ending::Signal(SIGSEGV)),
    program("jumps", "jumps.c", &["-O1"], STATIC, OK),
    program("past", "past.c", &["-O2"], STATIC, Ending::Signal(SIGSEGV)),
    program("bare", "bare.S", &[], STATIC, OK),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    #[test]
    fn every_source_has_a_row_and_a_description() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/programs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".bt") {
                continue;
            }
            assert!(
                PROGRAMS.iter().any(|program| program.source == name),
                "{name} has no row"
            );
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                ["/*", "//", "#"].iter().any(|mark| text.starts_with(mark)),
                "{name} has no comment"
            );
        }
    }

    #[test]
    fn every_variant_builds_and_ends_as_its_row_says() {
        for program in PROGRAMS {
            for &variant in program.variants {
                let path = crate::build(program, variant).unwrap();
                let status = Command::new(&path)
                    .env("RUST_BACKTRACE", "0")
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .unwrap();
                let ending = match (status.code(), status.signal()) {
                    (Some(code), _) => Ending::Exit(code),
                    (None, signal) => Ending::Signal(signal.unwrap()),
                };
                assert_eq!(ending, program.ending, "{} {}", program.name, variant.name());
            }
        }
    }
}
