//! Traces written as text, each with the expected result of its decode, which all engines of the
//! build must give.
//!
//! A file is a case, in the folder of its group. Its first comment says what it shows, and which
//! source specifies it. `#` starts a comment; in code `;` does too. A line without indentation is a
//! keyword:
//!
//! ```text
//! cpu 6/94/3                            the processor, for its errata
//! timing mtc:3 nom:24 eax:2 ebx:168     its clocks (`TimingParams`); each defaults to 0
//! filter FIRST..END, stop FIRST..END    address filters
//! label NAME ADDRESS                    an address without code
//! libipt: differs, REASON               libipt must give another result
//! ignored: REASON                       the native engine must give another result
//! code 64 at 0x1000                     64, 32 or 16 bit code: `name: 74 rel8:there ; je there`
//! packets                               `name: tip sext48:there`, `3 * tnt.short T`, `bytes d9 00`
//! expect                                the decoded output
//! calls                                 the call forest; optional
//! ```
//!
//! Code has one instruction per line, or `data` and any bytes; `rel8`, `rel16` and `rel32` are
//! distances. Packets are written as `backtrail dump packets` prints them. An address is a number,
//! a label, or `label+0x10`; labels of packets name trace offsets. Each label must be used, if only
//! in the expected output.
//!
//! Expected output has one event per line. Instructions contiguous in memory are written as
//! `at a b c`; `3 * at a / c` is three times two such lines. Engines need not agree on everything.
//! The message of a decode error, the events reported before it, the read offset at an overflow,
//! and repeated times are not compared with libipt.
//!
//! `BACKTRAIL_BLESS=1` rewrites the expected output, for review.
#![cfg(test)]

mod address;
mod calls;
mod case;
mod code;
mod compare;
mod packets;
mod record;
mod refused;

use case::Case;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn packets() {
    run("packets");
}

#[test]
fn flow() {
    run("flow");
}

#[test]
fn errata() {
    run("errata");
}

#[test]
fn times() {
    run("times");
}

/// Runs all files of a group.
fn run(group: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/text")
        .join(group);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no files in {}", folder.display());
    let bless = std::env::var_os("BACKTRAIL_BLESS").is_some();
    let (mut failures, mut failed, mut ignored) = (String::new(), 0, 0);
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        let name = path.strip_prefix(folder.parent().unwrap()).unwrap().display();
        let result = Case::parse(&text).and_then(|case| {
            if let Some(reason) = &case.ignored {
                ignored += 1;
                println!("ignored: {name}: {reason}");
            } else if bless {
                fs::write(path, case.blessed(&text)).unwrap();
                return Case::parse(&fs::read_to_string(path).unwrap())?.check();
            }
            case.check()
        });
        if let Err(problem) = result {
            failed += 1;
            let _ = writeln!(failures, "{name}: {problem}");
        }
    }
    println!("{group}: {} files, {ignored} ignored", paths.len());
    assert!(failed == 0, "{failed} of {} failed\n{failures}", paths.len());
}
