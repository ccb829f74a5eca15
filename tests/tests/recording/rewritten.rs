//! Code that a program rewrites while it runs. The bundle stores every executed version, and each
//! part of the trace is decoded with its own version.

use backtrail_tests::bundle::Bundle;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs four functions at one address, alternately in memory that stays writable and in memory that
/// does not.
const SOURCE: &str = r#"
#include <string.h>
#include <sys/mman.h>

static const unsigned char versions[4][16] = {
    { 0xb8, 1, 0, 0, 0, 0xc3 },                                     /* mov eax, 1; ret */
    { 0x31, 0xc0, 0x85, 0xff, 0x74, 3, 0x83, 0xc0, 2, 0xc3 },       /* 2 unless edi is 0 */
    { 0x31, 0xc0, 0x01, 0xf8, 0xff, 0xcf, 0x75, 0xfa, 0xc3 },       /* sum of edi .. 1 */
    { 0x90, 0x90, 0xb8, 1, 0, 0, 0, 0xeb, 0, 0xc3 },
};

static int run(unsigned char *code, int seal)
{
    int sum = 0;
    for (int turn = 0; turn < 12; turn++) {
        if (seal)
            mprotect(code, 4096, PROT_READ | PROT_WRITE);
        memcpy(code + 64, versions[turn * 5 % 4], 16);
        if (seal)
            mprotect(code, 4096, PROT_READ | PROT_EXEC);
        for (int call = 0; call < 3; call++)
            sum += ((int (*)(int))(code + 64))(turn + call);
    }
    return sum;
}

int main(void)
{
    unsigned char *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code == MAP_FAILED ? 99 : (run(code, 0) + run(code + 4096, 1)) & 63;
}
"#;

fn recorded(program: &Path, options: &[&OsStr]) -> Bundle {
    let mut command: Vec<&OsStr> = ["record", "--full", "--no-aslr"].map(OsStr::new).to_vec();
    command.extend(options);
    let (bundle, _) = Bundle::made(&command, &["--".as_ref(), program.as_ref()]);
    bundle
}

fn built(folder: &Path, source: &str) -> PathBuf {
    let (path, program) = (folder.join("rewriting.c"), folder.join("rewriting"));
    std::fs::write(&path, source).unwrap();
    let built = Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &path])
        .status()
        .unwrap();
    assert!(built.success());
    program
}

fn is_without_gaps(bundle: &Bundle) {
    let thread = &bundle.info()["threads"][0];
    assert_eq!(
        (thread["errors"].as_u64(), thread["gaps"].as_u64()),
        (Some(0), Some(0))
    );
}

/// A store and the code that it changes are in one block.
#[test]
fn code_after_a_store_is_executed_as_stored() {
    const NEXT: &str = r#"
#include <string.h>
#include <sys/mman.h>

/* movb $5,1(%rip); mov $1,%eax; ret */
static const unsigned char code[13] = { 0xc6, 5, 1, 0, 0, 0, 5, 0xb8, 1, 0, 0, 0, 0xc3 };

int main(void)
{
    unsigned char *place = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(place, code, sizeof code);
    return ((int (*)(void))place)();
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), NEXT);
    for engine in ["translate", "step"] {
        let bundle = recorded(&program, &["--engine".as_ref(), engine.as_ref()]);
        assert_eq!(bundle.info()["ending"]["exited"], 5, "{engine}");
        is_without_gaps(&bundle);
    }
}

/// One memory mapped at two addresses, as JIT compilers do without writable executable memory. The
/// second mapping may be removed and added again.
#[test]
fn code_is_written_through_a_second_mapping() {
    const TWICE: &str = r#"
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
    int file = memfd_create("code", 0), sum = 0;
    if (ftruncate(file, 8192))
        return 99;
    unsigned char *executed = mmap(0, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    unsigned char *written = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (unsigned char turn = 0; turn < 10; turn++) {
        unsigned char code[6] = { 0xb8, turn, 0, 0, 0, 0xc3 }; /* mov $turn,%eax; ret */
        if (turn == 5) {
            munmap(written, 8192);
            written = NULL;
        }
        unsigned char *here = written ? written : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 4096) - 4096;
        memcpy(here + 4096, code, sizeof code);
        if (!written)
            munmap(here + 4096, 4096);
        sum += ((int (*)(void))(executed + 4096))();
    }
    return sum;
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), TWICE);
    let golden = folder.path().join("golden");
    let stepped = recorded(&program, &["--golden".as_ref(), golden.as_ref()]);
    let translated = recorded(&program, &[]);
    for bundle in [&stepped, &translated] {
        assert_eq!(bundle.info()["ending"]["exited"], 45);
        is_without_gaps(bundle);
    }
    assert_eq!(translated.addresses().len(), stepped.addresses().len());
}

#[test]
fn each_version_decodes_where_it_ran() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), SOURCE);

    let golden = folder.path().join("golden");
    recorded(&program, &["--golden".as_ref(), golden.as_ref()]);
    let lists: Vec<Vec<u8>> = std::fs::read_dir(&golden)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let expected: Vec<u64> = lists[0]
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();

    let translated = recorded(&program, &[]);
    let decoded = translated.addresses();
    let differs = decoded
        .iter()
        .zip(&expected)
        .position(|(one, other)| one != other);
    assert_eq!((differs, decoded.len()), (None, expected.len()));
    is_without_gaps(&translated);
}
