//! The previous handler in `core_pattern` gets its cores, and is restored.

use crate::collect::example;
use crate::collector::{Collector, CorePattern, cannot, core_pattern, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Checks that our debugger can read the core.
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
fn previous_handler_gets_the_core_unchanged() {
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

/// Returns a program that crashes with this root directory, working directory, user and name.
fn confined(root: &Path, directory: &str, user: u32, name: &str) -> std::process::Command {
    let mut command = crate::collect::program("confined", "../collect/confined.c");
    command
        .arg(root)
        .arg(directory)
        .arg(user.to_string())
        .arg(name)
        .current_dir("/");
    command
}

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let found = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Makes a directory of this mode.
fn directory(path: &Path, mode: u32) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs a program to its crash, and waits until its handler has ended. The kernel keeps the process
/// until then.
fn crashes(program: &mut std::process::Command) {
    use std::os::unix::process::ExitStatusExt;
    let status = crate::collector::quiet(program).status().unwrap();
    assert_eq!(status.signal(), Some(11), "{status:?}");
}

#[test]
fn core_of_a_chroot_stays_inside() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let folder = collector.folder().to_owned();
    let (jail, outside) = (folder.join("jail"), folder.join("outside"));
    directory(&outside, 0o777);
    directory(&jail.join("real"), 0o777);
    std::os::unix::fs::symlink(&outside, jail.join("cores")).unwrap();
    std::os::unix::fs::symlink("/real", jail.join("absolute")).unwrap();
    let _before = CorePattern::set("/cores/core.%e.%p");
    collector.start();
    crashes(&mut confined(&jail, "/", 0, "evil"));
    assert_eq!(names(&outside), [""; 0]);
    collector.stop();
    // A link inside the chroot that leads to a directory inside.
    fs::write("/proc/sys/kernel/core_pattern", "/absolute/core.%e").unwrap();
    collector.start();
    crashes(&mut confined(&jail, "/", 0, "kept"));
    assert_eq!(names(&jail.join("real")), ["core.kept"]);
    is_core(&jail.join("real/core.kept"));
    // A relative name through an absolute link starts at the chroot's root, too.
    collector.stop();
    fs::write("/proc/sys/kernel/core_pattern", "cores/core.%e").unwrap();
    collector.start();
    crashes(&mut confined(&jail, "/", 0, "again"));
    assert_eq!(names(&outside), [""; 0]);
}

#[test]
fn a_core_file_is_opened_with_the_rights_of_the_process() {
    use std::os::unix::fs::MetadataExt;
    const NOBODY: u32 = 65534;
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let folder = collector.folder().to_owned();
    directory(&folder, 0o755);
    directory(&folder.join("closed/open"), 0o777);
    directory(&folder.join("closed"), 0o700);
    directory(&folder.join("group"), 0o2777);
    std::os::unix::fs::chown(folder.join("group"), None, Some(7)).unwrap();
    let closed = folder.join("closed/open");
    let pattern = |place: &Path| format!("{}/core.%e", place.display());
    let _before = CorePattern::set(&pattern(&closed));
    collector.start();
    crashes(&mut confined(Path::new("/"), "/", NOBODY, "user"));
    assert_eq!(names(&closed), [""; 0], "a user may not search the way there");
    crashes(&mut confined(Path::new("/"), "/", 0, "root"));
    assert_eq!(names(&closed), ["core.root"]);
    collector.stop();
    fs::write("/proc/sys/kernel/core_pattern", "core.%e").unwrap();
    collector.start();
    // The process entered the directory as root, and is another user now.
    let inside = closed.display().to_string();
    crashes(&mut confined(Path::new("/"), &inside, NOBODY, "user"));
    let group = folder.join("group");
    crashes(&mut confined(
        Path::new("/"),
        &group.display().to_string(),
        NOBODY,
        "user",
    ));
    let written = fs::metadata(group.join("core.user")).unwrap();
    assert_eq!(
        (written.uid(), written.gid(), written.mode() & 0o7777),
        (NOBODY, 7, 0o600)
    );
    is_core(&group.join("core.user"));
    // A link in place of the core, or a file of another user, is neither followed nor written to.
    fs::write(folder.join("theirs"), "theirs").unwrap();
    std::os::unix::fs::symlink(folder.join("theirs"), group.join("core.link")).unwrap();
    crashes(&mut confined(
        Path::new("/"),
        &group.display().to_string(),
        NOBODY,
        "link",
    ));
    assert_eq!(fs::read(folder.join("theirs")).unwrap(), b"theirs");
}
