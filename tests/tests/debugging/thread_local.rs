//! Thread-local variables of shared libraries, against GDB on the same core. One library is loaded
//! at the start, the other later. Some threads have used its variables.

use crate::gdb_answers::{by_gdb, have_gdb, ours};
use backtrail_tests::bundle::Bundle;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Loaded at the start.
const EARLY: &str = "
__thread int early_counter = 11;
__thread char early_name[8] = \"early\";
int early(int add) { early_counter += add; return early_name[0]; }
";

/// Loaded later, with a block that is allocated at the first use.
const LATE: &str = "
__thread long late_counter = 22;
__thread struct { int x, y; } late_point = {3, 4};
static __thread short late_hidden = 5;
long late(int add) { late_counter += add; late_hidden++; return late_point.x; }
";

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
__thread int own = 7;
int early(int);
static long (*late)(int);
static pthread_barrier_t all;
static void *uses(void *arg)
{
    own = 70, early(5), late(6);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    return arg;
}
static void *never(void *arg)
{
    early(1);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    return arg;
}
int main(int argc, char **argv)
{
    pthread_t threads[2];
    void *library = dlopen(argv[1], RTLD_NOW);
    late = (long (*)(int))dlsym(library, "late");
    pthread_barrier_init(&all, NULL, 3);
    pthread_create(&threads[0], NULL, uses, NULL);
    pthread_create(&threads[1], NULL, never, NULL);
    early(2), late(3);
    pthread_barrier_wait(&all);
    *(volatile int *)0 = argc;
    return 0;
}
"#;

fn compiled(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.c"));
    std::fs::write(&file, source).unwrap();
    let program = folder.join(name);
    let output = Command::new("cc")
        .args(["-g", "-O0", "-pthread", "-Wl,--build-id=sha1", "-o"])
        .args([&program, &file])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

#[test]
fn data_of_libraries_is_gdbs_in_each_thread() {
    if !have_gdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    compiled(folder.path(), "libearly.so", EARLY, &["-shared", "-fPIC"]);
    let late = compiled(folder.path(), "liblate.so", LATE, &["-shared", "-fPIC"]);
    let rpath = format!("-Wl,-rpath,{}", folder.path().display());
    let program = compiled(
        folder.path(),
        "program",
        PROGRAM,
        &[&at("libearly.so"), &rpath, "-ldl"],
    );
    let (bundle, _) = Bundle::made(
        &["record", "--full"],
        &["--".as_ref(), program.as_ref(), late.as_ref()],
    );
    let variables = [
        "p own",
        "p early_counter",
        "p early_name",
        "p &early_counter",
        "p late_counter",
        "p late_point",
        "p late_point.y",
        "p &late_counter",
        "p 'liblate.so.c'::late_hidden",
    ];
    let (our, their) = (ours(&bundle, &variables), by_gdb(&program, &bundle, &variables));
    assert_eq!(our, their);

    // One of the other threads has its own copies. The other has none, because it never used the
    // library.
    let listed = bundle
        .run(
            &["debug"],
            &[
                "--batch",
                "-e",
                "thread apply all p late_counter",
                "-e",
                "thread apply all p early_counter",
                "-e",
                "thread apply all p own",
            ],
        )
        .stdout;
    let count = |value: &str| listed.lines().filter(|line| line.ends_with(value)).count();
    assert_eq!((count("= 25"), count("= 28")), (1, 1), "{listed}");
    assert_eq!(
        count("= <unknown: the thread has not used the thread-local data of the module yet>"),
        1,
        "{listed}"
    );
    assert_eq!(
        (count("= 13"), count("= 16"), count("= 12")),
        (1, 1, 1),
        "{listed}"
    );
    assert_eq!((count("= 70"), count("= 7")), (1, 2), "{listed}");
}
