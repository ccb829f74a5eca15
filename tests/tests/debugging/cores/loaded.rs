//! Files that a process loaded several times, or that it also mapped to be read.

use super::{Place, debug};
use crate::gdb_answers::have_gdb;

const LIBRARY: &str = r#"
__attribute__((noinline)) int before_it(int *given) { return *given + 1; }
__attribute__((noinline)) int in_library(int *given) { return *given + 2; }
"#;

/// Maps its own file and the library low in memory, loads the library into two namespaces, and
/// crashes in the second copy.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
static void map_to_read(const char *path, void *address)
{
    int file = open(path, O_RDONLY);
    mmap(address, lseek(file, 0, SEEK_END), PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0);
    close(file);
}
typedef int (*function)(int *);
__attribute__((noinline)) static int call(void *library, int *given)
{
    return ((function)dlsym(library, "in_library"))(given) + 1;
}
int main(int argc, char **argv)
{
    map_to_read(argv[0], (void *)0x10000000);
    map_to_read(LIBRARY, (void *)0x20000000);
    int first = call(dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), &argc);
    return call(dlmopen(LM_ID_NEWLM, LIBRARY, RTLD_NOW), argc > 5 ? &first : 0);
}
"#;

#[test]
fn each_copy_of_a_library_has_its_own_names() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    for layout in ["-Wl,-z,separate-code", "-Wl,-z,noseparate-code"] {
        let library = place.compile("library.so", LIBRARY, &["-shared", "-fPIC", layout]);
        let named = format!("-DLIBRARY=\"{}\"", library.display());
        let program = place.compile("program", PROGRAM, &[&named, layout]);
        let core = place.crash(&program, &[]);
        let run = debug(&core, &[], &["bt 3", "x/i $pc"]).exited(0);
        let frames: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with('#')).collect();
        let expected = ["in_library (given=0x0)", "in call (", "in main (argc="];
        assert_eq!(frames.len(), expected.len(), "{layout}: {}", run.stdout);
        for (frame, expected) in frames.iter().zip(expected) {
            assert!(frame.contains(expected), "{layout}: {}", run.stdout);
        }
        assert!(run.stdout.contains("<in_library"), "{layout}: {}", run.stdout);
        assert_eq!(run.stderr, "", "{layout}");
    }
}
