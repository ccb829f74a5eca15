//! `cargo xtask bpf`: compiles the eBPF programs with a pinned compiler that needs only Python.

use crate::{Failure, node, shell};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Clang 22 inside Zig's compiler, as a Python package: one file for every Linux.
const COMPILER: &str = "ziglang==0.17.0";
/// The file that shows that this version is installed.
const SIGN: &str = "ziglang-0.17.0.dist-info";
/// Where the programs are, and beside it their objects.
const SOURCES: &str = "bpf/src";
/// The programs: `bpf/src/NAME.bpf.c` makes `bpf/NAME.bpf.o`.
const PROGRAMS: &[&str] = &["crash", "function", "heap", "sample"];

/// Options for reproducible objects: relative paths only, and no checks of the compiler.
const FLAGS: &[&str] = &[
    "-target",
    "bpfel-freestanding",
    "-mcpu=v3",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-ident",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fdebug-compilation-dir=.",
    "-Ibpf/src",
    "-c",
];

/// Compiles all programs and writes their objects.
pub fn run() -> Result<(), Failure> {
    let compiler = Compiler::install()?;
    for program in PROGRAMS {
        let object = compiler.compile(Path::new("."), program)?;
        let path = object_path(program);
        fs::write(&path, &object).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("Wrote {}, {} bytes.", path.display(), object.len());
    }
    Ok(())
}

/// Fails if an object differs from the compiler's output. Without a network for the compiler, a
/// message says that the check was skipped.
pub fn check() -> Result<(), Failure> {
    let compiler = match Compiler::install() {
        Ok(compiler) => compiler,
        Err(error) => {
            println!("{error}; the eBPF objects are not compared with their sources.");
            return Ok(());
        }
    };
    // In another folder: the object must not depend on where it is made.
    let root = elsewhere().map_err(|error| format!("cannot copy {SOURCES}: {error}"))?;
    for program in PROGRAMS {
        let path = object_path(program);
        let found = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if found != compiler.compile(root.path(), program)? {
            return Err(format!(
                "{} is outdated: run `cargo xtask bpf` to compile {SOURCES}/{program}.bpf.c",
                path.display()
            ));
        }
    }
    println!("The eBPF objects match their sources.");
    Ok(())
}

/// A new folder that has the sources where the repository has them.
fn elsewhere() -> std::io::Result<tempfile::TempDir> {
    let root = tempfile::tempdir()?;
    fs::create_dir_all(root.path().join(SOURCES))?;
    for file in fs::read_dir(SOURCES)? {
        let file = file?;
        fs::copy(file.path(), root.path().join(SOURCES).join(file.file_name()))?;
    }
    Ok(root)
}

fn object_path(program: &str) -> PathBuf {
    format!("bpf/{program}.bpf.o").into()
}

/// The installed compiler.
struct Compiler {
    /// The folder of the package.
    folder: PathBuf,
}

impl Compiler {
    fn install() -> Result<Self, Failure> {
        let folder = node::folder("bpf-compiler")?;
        if !folder.join(SIGN).is_dir() {
            println!("Installing {COMPILER} in {}.", folder.display());
            // Another version would be in the way.
            let _ = fs::remove_dir_all(&folder);
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(["--root-user-action=ignore", "--no-deps", "--target"])
                .arg(&folder)
                .arg(COMPILER);
            shell::run(&mut pip)?;
        }
        Ok(Self { folder })
    }

    /// Compiles a program of the repository at `root`, without debug sections.
    fn compile(&self, root: &Path, program: &str) -> Result<Vec<u8>, Failure> {
        let made = self.folder.join(format!("{program}.{}.o", std::process::id()));
        let cache = |name: &str| -> OsString { self.folder.join(name).into() };
        let mut command = Command::new("python3");
        command
            .args(["-m", "ziglang", "cc"])
            .args(FLAGS)
            .arg(format!("{SOURCES}/{program}.bpf.c"))
            .arg("-o")
            .arg(&made)
            .current_dir(root)
            .env("PYTHONPATH", &self.folder)
            .env("ZIG_GLOBAL_CACHE_DIR", cache("cache"))
            .env("ZIG_LOCAL_CACHE_DIR", cache("cache"));
        shell::run(&mut command)?;
        let object = fs::read(&made).map_err(|error| format!("cannot read {}: {error}", made.display()))?;
        let _ = fs::remove_file(&made);
        stripped(&object).ok_or_else(|| format!("the compiler wrote no ELF object for {program}.bpf.c"))
    }
}

/// Returns whether a loader ignores a section. A loader reads `.BTF` and `.BTF.ext`, and relocates
/// them itself.
fn is_idle(section: &str) -> bool {
    let name = section.strip_prefix(".rel").unwrap_or(section);
    name.starts_with(".debug_")
        || section.starts_with(".rel.BTF")
        || [".llvm_addrsig", ".eh_frame", ".rel.eh_frame"].contains(&section)
}

/// Returns the object without the contents of ignored sections, or nothing for other files than
/// little-endian ELF64 objects.
///
/// The sections stay, empty, so that no number of a section or symbol changes. Layout:
/// `Elf64_Ehdr`, `Elf64_Shdr` in the System V ABI.
fn stripped(object: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 64;
    const SECTION: usize = 64;
    if !object.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(object.get(at..at + 8)?.try_into().ok()?) as usize);
    let half = |at: usize| Some(u16::from_le_bytes(object.get(at..at + 2)?.try_into().ok()?).into());
    let (table, count, names): (usize, usize, usize) = (word(40)?, half(60)?, half(62)?);
    let header = |index: usize| object.get(table + SECTION * index..)?.get(..SECTION);
    let (names_at, names_len) = (
        word(table + SECTION * names + 24)?,
        word(table + SECTION * names + 32)?,
    );
    let names = object.get(names_at..names_at.checked_add(names_len)?)?;
    let mut out = object.get(..HEADER)?.to_vec();
    let mut headers = Vec::new();
    for index in 0..count {
        let at = table + SECTION * index;
        let mut section = header(index)?.to_vec();
        let name_at = u32::from_le_bytes(section[..4].try_into().ok()?) as usize;
        let name = names.get(name_at..)?.split(|byte| *byte == 0).next()?;
        let (offset, mut size, align) = (word(at + 24)?, word(at + 32)?, word(at + 48)?);
        if is_idle(std::str::from_utf8(name).ok()?) {
            size = 0;
        }
        out.resize(out.len().next_multiple_of(align.clamp(1, 64)), 0);
        section[24..32].copy_from_slice(&(out.len() as u64).to_le_bytes());
        section[32..40].copy_from_slice(&(size as u64).to_le_bytes());
        out.extend(object.get(offset..offset.checked_add(size)?)?);
        headers.extend(section);
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let table = out.len() as u64;
    out[40..48].copy_from_slice(&table.to_le_bytes());
    out.extend(headers);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

    #[test]
    fn sections_that_a_loader_reads_are_kept() {
        for idle in [
            ".debug_info",
            ".rel.debug_info",
            ".rel.BTF",
            ".rel.BTF.ext",
            ".llvm_addrsig",
        ] {
            assert!(is_idle(idle), "{idle}");
        }
        for read in [
            ".BTF",
            ".BTF.ext",
            ".maps",
            ".text",
            ".rel.text",
            ".rodata",
            "license",
            ".symtab",
        ] {
            assert!(!is_idle(read), "{read}");
        }
    }

    #[test]
    fn the_checked_in_objects_are_stripped() {
        for program in PROGRAMS {
            let object = fs::read(Path::new(REPOSITORY).join(object_path(program))).unwrap();
            assert_eq!(stripped(&object).as_ref(), Some(&object));
            // Its strings end in zeros, and an absolute path would begin after one. A match needs
            // three letters, because a number can look like a shorter path.
            let is_path =
                |bytes: &[u8]| bytes[..2] == *b"\0/" && bytes[2..].iter().all(u8::is_ascii_lowercase);
            assert!(
                !object.windows(5).any(is_path),
                "{program}: a path of one machine"
            );
        }
    }

    #[test]
    fn other_files_than_objects_are_refused() {
        assert_eq!(stripped(b""), None);
        let object = fs::read(Path::new(REPOSITORY).join(object_path("crash"))).unwrap();
        for len in [6, 64, 1000, object.len() - 1] {
            assert_eq!(stripped(&object[..len]), None, "{len}");
        }
    }
}
