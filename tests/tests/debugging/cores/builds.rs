//! A binary or debug file of another build than the core's is refused, and the right one is found.

use super::{CRASH, Place, build_id, by_build_id, debug, run};
use crate::gdb_answers::have_gdb;
use std::fs;
use std::path::Path;
use std::process::Command;

const SHOWN: &[&str] = &["bt 3", "x/i $pc", "crash"];

/// The options that name a directory.
fn symfs(directory: &Path) -> [&std::ffi::OsStr; 2] {
    ["--symfs".as_ref(), directory.as_ref()]
}

#[test]
fn other_build_at_the_path_is_refused() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let program = place.compile("program", CRASH, &[]);
    let right = place.copy(&program, "kept/right");
    let core = place.crash(&program, &[]);
    let run = debug(&core, &[], SHOWN).exited(0);
    assert!(run.stdout.contains("fail_here (hole=0x0, n=4)"), "{}", run.stdout);
    assert_eq!(run.stderr, "");
    // A rebuilt one, one without a build id, and one that is no program.
    place.compile("program", CRASH, &["-DNEW"]);
    let others = [
        build_id(&program),
        "no build id".to_owned(),
        "no ELF header".to_owned(),
    ];
    for (number, other) in others.iter().enumerate() {
        match number {
            1 => drop(place.compile("program", CRASH, &["-Wl,--build-id=none"])),
            2 => fs::write(&program, "#!/bin/sh\n").unwrap(),
            _ => {}
        }
        let run = debug(&core, &[], SHOWN).exited(0);
        let [stack, _] = run
            .stdout
            .split_once("crashed")
            .map(|(one, two)| [one, two])
            .unwrap();
        for wrong in ["second", "decoy", "fail_here", "program.c"] {
            assert!(!stack.contains(wrong), "{other}: {stack}");
        }
        assert!(stack.contains("?? () from "), "{stack}");
        for told in [&build_id(&right), other, "--symfs", "is not used"] {
            let notes = run.stdout.contains(told) && run.stderr.contains(told);
            assert!(notes, "{told}: {}{}", run.stdout, run.stderr);
        }
    }
}

#[test]
fn right_build_is_found_below_symfs() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let program = place.compile("program", CRASH, &[]);
    let id = build_id(&program);
    let right = place.copy(&program, "kept/right");
    let core = place.crash(&program, &[]);
    place.compile("program", CRASH, &["-DNEW"]);
    let recorded = program.strip_prefix("/").unwrap().display().to_string();
    let debug_file = by_build_id(&id, ".debug");
    let places = [
        recorded,
        "program".to_owned(),
        by_build_id(&id, ""),
        format!("usr/lib/debug/{}", by_build_id(&id, "")),
    ];
    for path in &places {
        let directory = place.at("symfs");
        place.copy(&right, &format!("symfs/{path}"));
        let run = debug(&core, &symfs(&directory), SHOWN).exited(0);
        assert!(
            run.stdout.contains("fail_here (hole=0x0, n=4)"),
            "{path}: {}",
            run.stdout
        );
        assert!(run.stdout.contains("main (argc="), "{path}: {}", run.stdout);
        assert_eq!(run.stderr, "", "{path}");
        fs::remove_dir_all(&directory).unwrap();
    }
    // Stripped, with a debug file by build id; then the debug file alone.
    let directory = place.at("symfs");
    let binary = place.copy(&right, "symfs/program");
    fs::create_dir_all(place.at(&format!("symfs/{debug_file}")).parent().unwrap()).unwrap();
    let debug_file = place.at(&format!("symfs/{debug_file}"));
    let mut split = Command::new("objcopy");
    super::run(split.arg("--only-keep-debug").arg(&right).arg(&debug_file));
    super::run(Command::new("strip").arg(&binary));
    let run = debug(&core, &symfs(&directory), SHOWN).exited(0);
    assert!(run.stdout.contains("main (argc="), "{}", run.stdout);
    fs::remove_file(&binary).unwrap();
    let run = debug(&core, &symfs(&directory), SHOWN).exited(0);
    assert!(run.stdout.contains("in fail_here ("), "{}", run.stdout);
    // A debug file of another build is named, and not used.
    let binary = place.copy(&right, "symfs/program");
    super::run(Command::new("strip").arg(&binary));
    fs::copy(&program, &debug_file).unwrap();
    let run = debug(&core, &symfs(&directory), &["bt 3", "info sharedlibrary"]).exited(0);
    assert!(!run.stdout.contains("fail_here"), "{}", run.stdout);
    assert!(run.stdout.contains("belongs to another build"), "{}", run.stdout);
}

#[test]
fn build_without_id_is_compared_by_its_first_page() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let flags = ["-Wl,--build-id=none"];
    let program = place.compile("program", CRASH, &flags);
    let core = place.crash(&program, &[]);
    let unstripped = place.copy(&program, "kept/program");
    // The same build, stripped since.
    run(Command::new("strip").arg(&program));
    let stripped = debug(&core, &[], SHOWN).exited(0);
    assert!(
        stripped.stdout.contains("from ") && stripped.stderr.is_empty(),
        "{}",
        stripped.stderr
    );
    fs::copy(&unstripped, &program).unwrap();
    let same = debug(&core, &[], SHOWN).exited(0);
    assert!(
        same.stdout.contains("fail_here (hole=0x0, n=4)"),
        "{}",
        same.stdout
    );
    place.compile("program", CRASH, &[flags[0], "-DNEW"]);
    let other = debug(&core, &[], SHOWN).exited(0);
    assert!(other.stderr.contains("other contents"), "{}", other.stderr);
    assert!(!other.stdout.contains("fail_here"), "{}", other.stdout);
}

#[test]
fn core_without_headers_warns_or_refuses() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let program = place.compile("program", CRASH, &[]);
    // Private anonymous memory alone: the default without bit 4.
    let filter = "python open('/proc/%d/coredump_filter' % gdb.selected_inferior().pid, 'w').write('0x23')";
    let core = place.crash(&program, &["break main", "run", filter, "delete", "continue"]);
    // GDB saves the process at the crash.
    let run = debug(&core, &[], SHOWN).exited(0);
    assert!(run.stdout.contains("fail_here (hole=0x0, n=4)"), "{}", run.stdout);
    for file in ["/program may be another build", "libc.so.6 may be another build"] {
        assert!(run.stderr.contains(file), "{}", run.stderr);
    }
    place.compile("program", CRASH, &["-DNEW"]);
    let run = debug(&core, &[], SHOWN).exited(0);
    assert!(!run.stdout.contains("fail_here ("), "{}", run.stdout);
    assert!(run.stderr.contains("is not used"), "{}", run.stderr);
}
