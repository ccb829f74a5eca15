//! Code that a program rewrites while it runs: the bundle keeps every version that ran, and each place of the trace
//! decodes with its own.
#![cfg(test)]

mod support;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use support::Bundle;

/// Runs four functions at one address, by turns in memory that stays writable and in memory that does not.
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

#[test]
fn each_version_decodes_where_it_ran() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("rewriting.c");
    std::fs::write(&source, SOURCE).unwrap();
    let program = folder.path().join("rewriting");
    let built = Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(built.success());

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
    let thread = &translated.info()["threads"][0];
    assert_eq!(
        (thread["errors"].as_u64(), thread["gaps"].as_u64()),
        (Some(0), Some(0))
    );
}
