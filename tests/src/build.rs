//! Builds of the example programs, once for each content and flags.

use crate::programs::{Language, Program, Variant, find};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/programs");

/// Builds `program` as `variant` unless it was built from this source, and returns its path.
///
/// The path is in the `test-programs` folder of the cargo target directory.
///
/// # Errors
///
/// The compiler is missing, or refuses; the text holds its output.
pub fn build(program: &Program, variant: Variant) -> io::Result<PathBuf> {
    let source = Path::new(SOURCES).join(program.source);
    let mut hasher = DefaultHasher::new();
    (fs::read(&source)?, SOURCES, program.flags, variant).hash(&mut hasher);
    let folder = target_directory()
        .join("test-programs")
        .join(format!("{:016x}", hasher.finish()));
    let executable = folder.join(program.name);
    if executable.exists() {
        return Ok(executable);
    }

    fs::create_dir_all(&folder)?;
    // Tests build at the same time: each under its own name, and the rename is atomic.
    static UNIQUE: AtomicU32 = AtomicU32::new(0);
    let unique = format!(
        "{}.{}",
        std::process::id(),
        UNIQUE.fetch_add(1, Ordering::Relaxed)
    );
    let unfinished = folder.join(unique);
    let mut compiler = command(program, variant);
    // Source paths are relative to their folder, so that debug information is the same everywhere.
    compiler
        .current_dir(SOURCES)
        .arg("-o")
        .arg(&unfinished)
        .arg(program.source);
    let output = compiler
        .output()
        .map_err(|error| io::Error::other(format!("cannot run {:?}: {error}", compiler.get_program())))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{compiler:?} failed: {text}")));
    }
    fs::rename(&unfinished, &executable)?;
    Ok(executable)
}

/// Builds a program by name.
///
/// # Errors
///
/// As [`build`], and when the table lacks the program.
pub fn built(name: &str, variant: Variant) -> io::Result<PathBuf> {
    let program = find(name).ok_or_else(|| io::Error::other(format!("no test program is named {name}")))?;
    build(program, variant)
}

fn command(program: &Program, variant: Variant) -> Command {
    let compiler = match program.language() {
        Language::C | Language::Assembly => "cc",
        Language::Cpp => "c++",
        Language::Rust => "rustc",
    };
    let mut command = Command::new(compiler);
    let fixed: &[&str] = match (program.language(), variant) {
        (Language::Rust, Variant::Static | Variant::StaticPie) => {
            &["--edition=2024", "-g", "-Ctarget-feature=+crt-static"]
        }
        (Language::Rust, Variant::NoPie) => &["--edition=2024", "-g", "-Crelocation-model=static"],
        (Language::Rust, Variant::Pie) => &["--edition=2024", "-g"],
        (Language::Assembly, _) => &["-g", "-static", "-nostdlib"],
        (_, Variant::Static) => &["-g", "-static"],
        (_, Variant::StaticPie) => &["-g", "-static-pie", "-fpie"],
        (_, Variant::NoPie) => &["-g", "-no-pie", "-fno-pie"],
        (_, Variant::Pie) => &["-g", "-pie", "-fpie"],
    };
    command.args(fixed).args(program.flags);
    if program.language() != Language::Rust {
        // A build id for crash tests: `ld` of some distributions adds none by default.
        command.arg("-Wl,--build-id=sha1");
    } else {
        command.arg("-Clink-arg=-Wl,--build-id=sha1");
    }
    command
}

/// The cargo target directory of this build.
pub(crate) fn target_directory() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
    }
}
