//! What stood in `core_pattern` before: it gets its cores, and comes back.

use crate::collector::{Collector, CorePattern, cannot, core_pattern, until};
use crate::example;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A core that is whole enough for our debugger.
#[track_caller]
fn is_core(path: &Path) {
    let run = backtrail_tests::backtrail::backtrail([
        "debug",
        "--batch",
        "-e",
        "backtrace",
        path.to_str().unwrap(),
    ]);
    let run = run.unwrap();
    assert!(run.stdout.contains("main"), "{run:?}");
}

#[test]
fn a_handler_before_us_gets_the_core_as_the_kernel_sends_it() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let folder = collector.folder().to_owned();
    let script = folder.join("theirs");
    let text = format!(
        "#!/bin/sh\ncat > {0}/their.core\nls /proc/$1 > {0}/their.proc\necho \"$@\" > {0}/their.arguments\n",
        folder.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let theirs = format!("|{} %P %s %e %%", script.display());
    let _before = CorePattern::set(&theirs);
    collector.start();
    let crash = collector.crash(&mut example("crash_null"));
    let arguments = folder.join("their.arguments");
    until("their handler has run", || arguments.exists());
    let said = fs::read_to_string(arguments).unwrap();
    assert!(
        said.starts_with(&format!("{} 11 crash_null", crash["pid"])) && said.trim().ends_with(" %"),
        "{said}"
    );
    let seen = fs::read_to_string(folder.join("their.proc")).unwrap();
    assert!(seen.contains("maps"), "the process was still there: {seen}");
    is_core(&folder.join("their.core"));
    is_core(&Path::new(crash["bundle"].as_str().unwrap()).join("core"));
    collector.stop();
    assert_eq!(core_pattern(), theirs);
}

#[test]
fn a_core_file_is_written_where_the_kernel_would() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let _before = CorePattern::set("left.%e.%p");
    collector.start();
    let folder = collector.folder().to_owned();
    let mut limited = std::process::Command::new("sh");
    let binary = backtrail_tests::built("crash_null", backtrail_tests::programs::Variant::Pie).unwrap();
    let core = |pid: &serde_json::Value| {
        let found = fs::read_dir(&folder).unwrap().flatten();
        let mut found = found.map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("left.") && name.ends_with(&format!(".{pid}"))
        });
        found.next()
    };
    limited
        .args(["-c", "ulimit -c unlimited; exec \"$0\""])
        .arg(&binary)
        .current_dir(&folder);
    let crash = collector.crash(&mut limited);
    let mut found = None;
    until("the core file is there", || {
        found = core(&crash["pid"]);
        found.is_some()
    });
    is_core(&found.unwrap());
    let mut without = std::process::Command::new("sh");
    without
        .args(["-c", "ulimit -c 0; exec \"$0\""])
        .arg(&binary)
        .current_dir(&folder);
    let crash = collector.crash(&mut without);
    assert_eq!(crash["complete"], true, "our bundle asks for no limit");
    assert_eq!(core(&crash["pid"]), None, "a limit of 0 leaves none");
    collector.stop();
    assert_eq!(core_pattern(), "left.%e.%p");
}
