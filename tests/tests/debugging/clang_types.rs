//! Variables that clang marks as its own, types that it omits, and data beyond a file's mapping.

use crate::gdb_answers::ours;
use backtrail_tests::bundle::Bundle;
use std::path::Path;
use std::process::Command;

/// Clang by the names that distributions have for it, and then any compiler.
const COMPILERS: [&str; 4] = ["clang++-19", "clang++-16", "clang++", "c++"];

/// Builds the program by the first compiler that is installed, and records it.
fn recorded(flags: &[&str]) -> Bundle {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bindings");
    let built = COMPILERS.iter().find_map(|compiler| {
        let output = Command::new(compiler)
            .args(["-std=c++17", "-g", "-O0", "-o"])
            .arg(&program)
            .args(flags)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/locals/bindings.cpp"))
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{compiler}: {text}");
        Some(())
    });
    built.expect("no compiler of C++");
    Bundle::made(&["record", "--full"], &["--".as_ref(), program.as_ref()]).0
}

#[test]
fn bindings_and_strings_of_clang_have_values() {
    for flags in [&["-gdwarf-5"][..], &["-gdwarf-4"], &["-fstandalone-debug"]] {
        if flags[0].starts_with("-fst") && Command::new("clang++-19").output().is_err() {
            continue;
        }
        let said = ours(
            &recorded(flags),
            &["info locals", "print height", "print short_text.size()"],
        );
        let locals = &said[0].1;
        for local in [
            "width = 3",
            "height = 40",
            "short_text = \"mill\"",
            "long_text = \"market square and fountain\"",
            "no_text = \"\"",
            "wide_text = L\"gate\"",
        ] {
            assert!(
                locals.iter().any(|line| line == local),
                "{flags:?} {local}\n{locals:#?}"
            );
        }
        let number = locals.iter().find(|line| line.starts_with("number = "));
        assert!(number.is_some_and(|line| line.ends_with(": 5")), "{locals:#?}");
        assert!(!locals.iter().any(|line| line.starts_with("__")), "{locals:#?}");
        assert_eq!(said[1].1, ["$ = 40"]);
        assert_eq!(said[2].1, ["$ = 4"]);
    }
}

#[test]
fn data_beyond_the_mapping_of_its_file_has_a_name() {
    let said = ours(&recorded(&[]), &["print far", "print &large[700000]", "x/a &far"]);
    assert!(said[0].1[0].ends_with(" <large+600000> \"x\""), "{said:#?}");
    assert!(said[1].1[0].contains(" <large+700000>"), "{said:#?}");
    assert!(said[2].1[0].ends_with(" <large+600000>"), "{said:#?}");
}
