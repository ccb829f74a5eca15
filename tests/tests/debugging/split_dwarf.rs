//! Variables and types of programs with split DWARF, against GDB on the same core.

use crate::gdb_answers::{by_gdb, have_gdb, ours, ours_with};
use backtrail_tests::bundle::Bundle;
use std::process::Command;

#[test]
fn values_of_split_dwarf_are_gdbs() {
    if !have_gdb() {
        return;
    }
    let commands = [
        "info args",
        "p *animal",
        "p flyer",
        "p duck",
        "p item",
        "p *(Duck *)animal",
        "p box",
        "ptype/r item",
        "ptype/r duck",
        "whatis &duck.legs",
        "p sizeof(duck)",
        "p Base::made",
        "up",
        "info locals",
    ];
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/programs/classes.cpp");
    let kinds: [&[&str]; 3] = [
        &["-gdwarf-4"],
        &["-gdwarf-5"],
        &["-gdwarf-4", "-fdebug-types-section"],
    ];
    for kind in kinds {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(source, folder.path().join("classes.cpp")).unwrap();
        let program = folder.path().join("program");
        let output = Command::new("c++")
            .current_dir(folder.path())
            .args(["-O0", "-std=c++17", "-gsplit-dwarf", "-Wl,--build-id=sha1"])
            .args(kind)
            .args(["classes.cpp", "-o", "program"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let (bundle, _) = Bundle::made(&["record", "--full"], &["--".as_ref(), program.as_ref()]);
        let our = ours_with(&bundle, folder.path(), &commands);
        let their = by_gdb(&program, &bundle, &commands);
        for ((command, our), (_, their)) in our.iter().zip(&their) {
            assert!(
                our == their || command == "up",
                "{kind:?} {command}\n{our:#?}\n{their:#?}"
            );
        }
        // Only named folders are searched. The program's own folder is not in the bundle.
        let said = ours(&bundle, &["info sharedlibrary"]);
        assert!(said[0].1.join("\n").contains(".dwo files of"), "{said:#?}");
    }
}
