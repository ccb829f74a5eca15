//! The libraries and symbol versions that a binary needs from its system.

use super::output_of;
use crate::Failure;
use std::path::Path;
use std::process::Command;

/// The libraries of glibc. The binary may need no other.
const LIBRARIES: [&str; 6] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// Fails if a binary needs a symbol of a newer glibc, or a library that is not glibc's.
pub fn check(binary: &Path, newest: (u32, u32)) -> Result<(), Failure> {
    let symbols = output_of(Command::new("objdump").arg("-T").arg(binary))?;
    let headers = output_of(Command::new("objdump").arg("-p").arg(binary))?;
    let mut problems: Vec<String> = too_new(&symbols, newest)
        .into_iter()
        .map(|(symbol, version)| format!("{symbol} needs {version}"))
        .collect();
    let needed = needed(&headers);
    if !needed.contains(&"libc.so.6") {
        problems.push("no glibc is needed, so nothing was checked".to_owned());
    }
    let others = needed.iter().filter(|library| !LIBRARIES.contains(library));
    problems.extend(others.map(|library| format!("{library} is needed, which not every system has")));
    if problems.is_empty() {
        println!(
            "dist: {} needs {}, glibc {}.{}",
            binary.display(),
            needed.join(", "),
            newest.0,
            newest.1
        );
        return Ok(());
    }
    Err(format!("{}: {}", binary.display(), problems.join("; ")))
}

/// Reads `objdump -T`: the symbols with a version of glibc above `newest`, and those versions.
///
/// Versions without numbers are private and change with each glibc, so they are above too.
fn too_new(symbols: &str, newest: (u32, u32)) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for line in symbols.lines() {
        let mut words = line.split_whitespace().rev();
        let (Some(symbol), Some(version)) = (words.next(), words.next()) else {
            continue;
        };
        let version = version.trim_start_matches('(').trim_end_matches(')');
        let Some(numbers) = version.strip_prefix("GLIBC_") else {
            continue;
        };
        let mut numbers = numbers.split('.').map(|number| number.parse::<u32>().ok());
        let number = (numbers.next().flatten(), numbers.next().flatten());
        let is_old = matches!(number, (Some(major), Some(minor)) if (major, minor) <= newest);
        if !is_old {
            found.push((symbol, version));
        }
    }
    found
}

/// Reads `objdump -p`: the libraries of `NEEDED` entries.
fn needed(headers: &str) -> Vec<&str> {
    headers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"))
        .map(str::trim)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "
DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) fopen64
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.28) statx
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) __libc_start_main
0000000000000000  w   DF *UND*\t0000000000000000  GLIBC_2.30 gettid
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_PRIVATE) _dl_open
0000000000000000      DF *UND*\t0000000000000000 (GCC_3.0) _Unwind_Resume
0000000000000000  w   D  *UND*\t0000000000000000  Base        __gmon_start__
";

    #[test]
    fn newer_and_private_symbols_are_found() {
        let found = too_new(SYMBOLS, (2, 28));
        let expected = [
            ("__libc_start_main", "GLIBC_2.34"),
            ("gettid", "GLIBC_2.30"),
            ("_dl_open", "GLIBC_PRIVATE"),
        ];
        assert_eq!(found, expected);
        assert_eq!(too_new(SYMBOLS, (2, 27)).len(), 4);
        assert_eq!(too_new(SYMBOLS, (3, 0)), [("_dl_open", "GLIBC_PRIVATE")]);
    }

    #[test]
    fn needed_libraries_are_read() {
        let text = "Dynamic Section:\n  NEEDED               libgcc_s.so.1\n  NEEDED               libc.so.6\n  INIT 0x1000\n";
        assert_eq!(needed(text), ["libgcc_s.so.1", "libc.so.6"]);
    }

    #[test]
    fn program_for_this_system_is_refused_for_an_old_one() {
        let program = std::env::current_exe().unwrap();
        let problem = check(&program, (2, 2)).unwrap_err();
        assert!(problem.contains("needs GLIBC_2."), "{problem}");
    }
}
