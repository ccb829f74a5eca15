//! Traces written as text, each with what a decode of it gives; all engines of the build are held to that.
//!
//! One file is one case, in the folder of its group. Its first comment says what it shows, and where that
//! is written. `#` begins a comment, `;` in code too. A line that is not indented is a keyword:
//!
//! ```text
//! cpu 6/94/3                            the processor, for its errata
//! timing mtc:3 nom:24 eax:2 ebx:168     its clocks (`TimingParams`); each is 0 if left out
//! filter FIRST..END, stop FIRST..END    address filters
//! label NAME ADDRESS                    an address without code
//! libipt: differs, REASON               libipt gives something else; that it does is checked
//! ignored: REASON                       the native engine gives something else; that it does is checked
//! code 64 at 0x1000                     code of 64, 32 or 16 bit: `name: 74 rel8:there ; je there`
//! packets                               `name: tip sext48:there`, `3 * tnt.short T`, `bytes d9 00`
//! expect                                what is decoded
//! calls                                 the call forest; may be left out
//! ```
//!
//! Code has one instruction a line, or `data` and any bytes; `rel8`, `rel16` and `rel32` are distances.
//! Packets are as `backtrail dump packets` prints them. An address is a number, a label, or `label+0x10`;
//! labels of packets name offsets of the trace. Each label is used, if only by what is expected.
//!
//! Expected is one event a line, and instructions that follow one another in memory as `at a b c`, where
//! `3 * at a / c` is three times two such lines. Of libipt, what two engines need not share is not compared: the words
//! of a decode error, and which events they have told when there is one, how far the trace was read at
//! an overflow, and times that are no news.
//!
//! `BACKTRAIL_BLESS=1` writes what is expected anew, to be read by a human.
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

/// Tries all files of a group.
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
