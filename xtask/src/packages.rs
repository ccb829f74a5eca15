//! Packages of the system that the build and the tests need, and their installation.
//!
//! As root on a system with `apt-get`, they are installed with a message. Otherwise the exact
//! command line is printed.

use crate::{Failure, shell};
use backtrail_tests::real::PROGRAMS;
use std::path::Path;
use std::process::Command;

/// Something that a Debian package provides.
pub struct Need {
    /// Debian's name of the package.
    package: &'static str,
    /// Its purpose.
    why: &'static str,
    /// How one sees that it is there, installed from a package or not.
    sign: Sign,
    /// Without it, the tests that need it are skipped and say so.
    optional: bool,
}

enum Sign {
    /// A program in `PATH`, or a path.
    Tool(&'static str),
    Libclang,
}

const fn need(package: &'static str, sign: Sign, why: &'static str) -> Need {
    Need {
        package,
        why,
        sign,
        optional: false,
    }
}

const fn wish(package: &'static str, sign: Sign, why: &'static str) -> Need {
    Need {
        package,
        why,
        sign,
        optional: true,
    }
}

/// Requirements of `cargo build`.
pub const BUILD: &[Need] = &[
    need("gcc", Sign::Tool("cc"), "links, and compiles the C demo"),
    need("libc6-dev", Sign::Tool("cc"), "the C library's headers"),
];

/// Requirements of the crate `oracle`, in addition to [`BUILD`].
pub const ORACLE: &[Need] = &[
    need(
        "cmake",
        Sign::Tool("cmake"),
        "builds libipt, the PT decoder library",
    ),
    need("make", Sign::Tool("make"), "runs what cmake makes"),
    need("libclang-dev", Sign::Libclang, "generates libipt's bindings"),
];

/// Requirements of the tests, in addition to [`BUILD`].
pub const TEST: &[Need] = &[
    need("g++", Sign::Tool("c++"), "compiles the C++ test programs"),
    need(
        "binutils",
        Sign::Tool("objcopy"),
        "splits debug information off test programs",
    ),
    need("less", Sign::Tool("less"), "the default pager of the debugger"),
    wish(
        "gdb",
        Sign::Tool("gdb"),
        "reads our cores; its stacks are compared with ours",
    ),
    wish(
        "sqlite3",
        Sign::Tool("/usr/bin/sqlite3"),
        "a real program that is made to crash",
    ),
    wish(
        "libsqlite3-dev",
        Sign::Tool("/usr/include/sqlite3ext.h"),
        "the extension that makes it crash",
    ),
    wish(
        "redis-server",
        Sign::Tool("/usr/bin/redis-server"),
        "a real program that is made to crash",
    ),
    wish(
        "python3",
        Sign::Tool("/usr/bin/python3"),
        "a real program that is made to crash",
    ),
    wish(
        "python3-dbg",
        Sign::Tool("/usr/bin/python3-dbg"),
        "its debug symbols",
    ),
    wish("python3-pip", Sign::Tool("pip3"), "installs what opens exports"),
    wish(
        "openssl",
        Sign::Tool("openssl"),
        "makes certificates: a trace is fetched over HTTPS",
    ),
    wish(
        "postgresql",
        Sign::Tool("pg_ctlcluster"),
        "the database of several hubs",
    ),
    wish(
        "debuginfod",
        Sign::Tool("debuginfod-find"),
        "fetches debug files from a hub",
    ),
    wish(
        "linux-perf",
        Sign::Tool("perf"),
        "records and reads perf.data files",
    ),
    wish(
        "clang-16",
        Sign::Tool("clang-16"),
        "compiles test programs as LLVM describes them",
    ),
    wish(
        "llvm-19",
        Sign::Tool("llvm-profgen-19"),
        "counts lines of executed code; its counts are compared with ours",
    ),
    wish(
        "musl-tools",
        Sign::Tool("musl-gcc"),
        "compiles programs with another C library, whose requests are read",
    ),
    wish(
        "lldb-22",
        Sign::Tool("lldb-22"),
        "loads our bundles; its listings are compared with ours",
    ),
];

/// Requirements of the long tests, in addition to [`TEST`], to build programs from Debian's
/// sources, and those in Java.
pub const SOURCES: &[Need] = &[
    need("make", Sign::Tool("make"), "builds real programs from source"),
    wish(
        "dpkg-dev",
        Sign::Tool("dpkg-source"),
        "unpacks Debian's sources of real programs",
    ),
    wish("tcl", Sign::Tool("tclsh"), "puts the source of sqlite3 together"),
    wish(
        "default-jdk-headless",
        Sign::Tool("jfr"),
        "records a Java program; its listing is compared with ours",
    ),
];

/// Requirements to install the readers of exports.
pub const READERS: &[Need] = &[wish(
    "python3-pip",
    Sign::Tool("pip3"),
    "installs what opens exports",
)];

/// The editors that the tests drive, or what shows them.
pub const EDITORS: &[Need] = &[
    wish("chromium", Sign::Tool("chromium"), "shows VS Code to the tests"),
    wish("emacs-nox", Sign::Tool("emacs"), "an editor that debugs with us"),
    wish(
        "elpa-dap-mode",
        Sign::Tool("/usr/share/doc/elpa-dap-mode/copyright"),
        "its client of debug adapters",
    ),
];

/// Requirements of `cargo xtask dist`, in addition to [`BUILD`].
pub const DIST: &[Need] = &[
    need(
        "python3-pip",
        Sign::Tool("pip3"),
        "installs the linker for old systems",
    ),
    need(
        "binutils",
        Sign::Tool("objcopy"),
        "splits debug information off the binary",
    ),
];

/// Requirements of `cargo xtask bench fdo`, in addition to [`BUILD`].
pub const FDO: &[Need] = &[
    need(
        "clang-19",
        Sign::Tool("clang-19"),
        "compiles with a sample profile",
    ),
    need("llvm-19", Sign::Tool("llvm-profgen-19"), "makes a sample profile"),
    need("bolt-19", Sign::Tool("llvm-bolt-19"), "lays out a binary again"),
    need("dpkg-dev", Sign::Tool("dpkg-source"), "unpacks Debian's source"),
];

/// Requirements to install the package in a bare Debian.
pub const ROOT: &[Need] = &[wish(
    "debootstrap",
    Sign::Tool("debootstrap"),
    "makes a bare Debian, where the package is installed",
)];

/// Requirements to combine pictures.
pub const PICTURES: &[Need] = &[need(
    "webp",
    Sign::Tool("img2webp"),
    "keeps screenshots small, and moves them",
)];

/// Readers of exports that take hundreds of megabytes, for the long tests.
pub const HEAVY_READERS: &[Need] = &[wish(
    "golang-go",
    Sign::Tool("go"),
    "pprof, which reads our profiles",
)];

/// Compilers whose programs are compared with GDB in the long tests, in addition to those of
/// [`HEAVY_READERS`].
pub const COMPILERS: &[Need] = &[
    wish(
        "clang-16",
        Sign::Tool("clang-16"),
        "compiles programs whose variables are compared with GDB's",
    ),
    wish(
        "libclang-rt-16-dev",
        Sign::Tool("/usr/lib/llvm-16/lib/clang/16/lib/linux/libclang_rt.asan-x86_64.a"),
        "its sanitizers",
    ),
    wish("clang-19", Sign::Tool("clang-19"), "its current version"),
    wish(
        "libclang-rt-19-dev",
        Sign::Tool("/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-x86_64.a"),
        "its sanitizers",
    ),
];

/// Tools that the benchmarks compare with.
pub const BENCH: &[Need] = &[wish(
    "qemu-user",
    Sign::Tool("qemu-x86_64"),
    "emulates, and counts what is executed: a peer in benchmarks",
)];

/// The tool that counts machine instructions. The benchmarks compare with it too.
pub const COUNT: &[Need] = &[wish(
    "valgrind",
    Sign::Tool("valgrind"),
    "counts the machine instructions of decoding",
)];

/// Requirements of `cargo xtask test-vm`, in addition to [`BUILD`].
pub const VM: &[Need] = &[
    need(
        "qemu-system-x86",
        Sign::Tool("qemu-system-x86_64"),
        "runs other kernels, in software emulation",
    ),
    need("binutils", Sign::Tool("strip"), "makes what runs in them small"),
    need("make", Sign::Tool("make"), "builds the stand-in for Intel PT"),
    need(
        "libelf1",
        Sign::Tool("/usr/lib/x86_64-linux-gnu/libelf.so.1"),
        "the kernel's own tools for modules",
    ),
    need("dpkg", Sign::Tool("dpkg"), "unpacks kernels"),
];

/// Returns the packages of all real programs, each once.
pub fn of_programs(names: &[&str]) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    for program in PROGRAMS.iter().filter(|program| names.contains(&program.name)) {
        for required in program.requires {
            if needs.iter().all(|need| need.package != required.package) {
                let sign = Sign::Tool(required.tool);
                needs.push(wish(
                    required.package,
                    sign,
                    "a real program to record, or its client",
                ));
            }
        }
    }
    needs
}

/// [`of_programs`] of the whole table.
pub fn programs() -> Vec<Need> {
    let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
    of_programs(&names)
}

/// Sees to it that every one of `needs` is there.
pub fn ensure(needs: &[&[Need]]) -> Result<(), Failure> {
    let missing: Vec<&Need> = needs
        .iter()
        .flat_map(|list| list.iter())
        .filter(|need| !need.met())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("Missing on this machine:");
    for need in &missing {
        println!(
            "    {:23} {}{}",
            need.package,
            need.why,
            if need.optional { " (optional)" } else { "" }
        );
    }

    if shell::in_path("apt-get") && shell::output("id", &["-u"]).as_deref() == Some("0\n") {
        install(&missing)?;
    }
    let (lost, skipped): (Vec<&Need>, Vec<&Need>) = missing
        .into_iter()
        .filter(|need| !need.met())
        .partition(|need| !need.optional);
    if !skipped.is_empty() {
        println!(
            "Going on without {}: tests that need it are skipped.",
            names(&skipped).join(", ")
        );
    }
    if lost.is_empty() {
        Ok(())
    } else {
        Err(by_hand(&lost))
    }
}

fn install(missing: &[&Need]) -> Result<(), Failure> {
    println!("Installing them with apt-get.");
    // A third-party source that cannot be reached must not stop us: the packages are Debian's.
    if let Err(error) = shell::run(Command::new("apt-get").args(["update", "-q"])) {
        println!("{error}; continuing with the existing package lists");
    }
    let wanted: Vec<&Need> = missing
        .iter()
        .copied()
        .filter(|need| !need.optional || obtainable(need.package))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    shell::run(
        Command::new("apt-get")
            .args(["install", "-q", "-y", "--no-install-recommends"])
            .args(names(&wanted))
            .env("DEBIAN_FRONTEND", "noninteractive")
            // As in single-user mode: an installed server is not started.
            .env("RUNLEVEL", "1"),
    )
}

fn obtainable(package: &str) -> bool {
    shell::output("apt-cache", &["policy", package]).is_some_and(|text| has_candidate(&text))
}

/// Reads `apt-cache policy`: nothing for an unknown package, `(none)` for one without a version.
fn has_candidate(policy: &str) -> bool {
    policy.lines().any(
        |line| matches!(line.trim().split_once("Candidate: "), Some(("", version)) if version != "(none)"),
    )
}

fn by_hand(lost: &[&Need]) -> Failure {
    format!(
        "the above is needed. On Debian or Ubuntu, type\n\n    sudo apt-get update && sudo apt-get install -y {}\n\n\
         and run this again; elsewhere, install what these packages hold.",
        names(lost).join(" ")
    )
}

fn names(needs: &[&Need]) -> Vec<&'static str> {
    needs.iter().map(|need| need.package).collect()
}

impl Need {
    fn met(&self) -> bool {
        match self.sign {
            Sign::Tool(program) => {
                shell::in_path(program)
                    || ["/usr/sbin", "/"]
                        .iter()
                        .any(|folder| Path::new(folder).join(program).is_file())
            }
            Sign::Libclang => {
                std::env::var_os("LIBCLANG_PATH").is_some()
                    || LIBRARY_FOLDERS.iter().any(|folder| libclang_in(folder))
            }
        }
    }
}

/// Where distributions put libclang; with `llvm` at the end, a prefix of one folder a version.
const LIBRARY_FOLDERS: &[&str] = &[
    "/usr/lib/llvm",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

fn libclang_in(folder: &str) -> bool {
    let folder = Path::new(folder);
    if folder.ends_with("llvm") {
        let Some(parent) = folder.parent() else {
            return false;
        };
        return entries(parent)
            .any(|name| name.starts_with("llvm") && has_libclang(&parent.join(name).join("lib")));
    }
    has_libclang(folder)
}

/// The name without a version comes with the headers that bindgen needs too.
fn has_libclang(folder: &Path) -> bool {
    folder.join("libclang.so").exists()
}

fn entries(folder: &Path) -> impl Iterator<Item = String> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_candidate_can_be_installed() {
        assert!(has_candidate("gdb:\n  Installed: (none)\n  Candidate: 13.1-3\n"));
        assert!(!has_candidate("gdb:\n  Installed: 13.1-3\n  Candidate: (none)\n"));
        assert!(!has_candidate(""));
    }

    #[test]
    fn the_line_to_type_names_every_package() {
        let needs: Vec<&Need> = BUILD.iter().chain(ORACLE).collect();
        assert!(by_hand(&needs).contains("apt-get install -y gcc libc6-dev cmake make libclang-dev\n"));
    }
}
