//! Programs with and without symbols, and files that are none.

use super::*;
use std::fs;
use std::process::Command;

/// A folder with a program and its stripped copy and debug file.
fn programs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.c"), "int main(void) { return 0; }\n").unwrap();
    let run = |words: &[&str]| {
        let (program, arguments) = words.split_first().unwrap();
        let status = Command::new(program)
            .args(arguments)
            .current_dir(&folder)
            .status();
        assert!(status.unwrap().success(), "{words:?}");
    };
    run(&["cc", "-g", "-Wl,--build-id=sha1", "-o", "full", "a.c"]);
    run(&["cc", "-Wl,--build-id=sha1", "-o", "names", "a.c"]);
    run(&["strip", "-o", "stripped", "full"]);
    run(&["objcopy", "--only-keep-debug", "full", "debug"]);
    folder
}

#[test]
fn contents_decide_what_a_file_is_good_for() {
    let folder = programs();
    let found = |name: &str| inspect(&folder.path().join(name)).unwrap();
    let full = found("full");
    assert_eq!(full.build_id.as_ref().unwrap().len(), 40);
    let parts = |found: &ElfContents| (found.has_code, found.has_symbols, found.has_debug_info);
    assert_eq!(parts(&full), (true, true, true));
    assert_eq!(parts(&found("names")), (true, true, false));
    let stripped = found("stripped");
    assert_eq!(parts(&stripped), (true, false, false));
    let debug = found("debug");
    assert_eq!(parts(&debug), (false, true, true));
    assert_eq!(
        (&stripped.build_id, &debug.build_id),
        (&full.build_id, &full.build_id)
    );
    assert_eq!(
        [full.detail(), found("names").detail(), stripped.detail()],
        [2, 1, 0]
    );
}

#[test]
fn damaged_files_are_refused_with_a_sentence() {
    let folder = programs();
    let path = folder.path().join("damaged");
    let refusal = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        inspect(&path).unwrap_err()
    };
    let full = fs::read(folder.path().join("full")).unwrap();
    assert_eq!(refusal(b""), "this is not an ELF file");
    assert_eq!(refusal(b"text"), "this is not an ELF file");
    assert!(refusal(b"PK\x03\x04 and more").contains("upload without sources"));
    for length in [4, 16, 63, 64, 100, full.len() / 2, full.len() - 1] {
        let said = refusal(&full[..length]);
        assert!(said.contains("ELF file"), "{length}: {said}");
    }
}

#[test]
fn any_damaged_byte_of_the_headers_is_no_panic() {
    let folder = programs();
    let path = folder.path().join("damaged");
    let full = fs::read(folder.path().join("stripped")).unwrap();
    let table = full.len() - 64 * 4;
    for at in (0..64).chain(table..full.len()) {
        let mut content = full.clone();
        content[at] = !content[at];
        fs::write(&path, content).unwrap();
        let _ = inspect(&path);
        let _ = copy_section(&path, ".text", &folder.path().join(format!("section-{at}")));
    }
}

#[test]
fn sections_are_copied_as_they_are_stored() {
    let folder = programs();
    let copy = |file: &str, name: &str, target: &str| {
        copy_section(&folder.path().join(file), name, &folder.path().join(target)).unwrap()
    };
    assert!(copy("full", ".interp", "one"));
    let text = fs::read(folder.path().join("one")).unwrap();
    assert!(text.starts_with(b"/lib64/ld-linux"), "{text:?}");
    assert!(!copy("debug", ".text", "two"));
    assert!(!copy("full", "../../etc/passwd", "three"));
    assert!(!copy("full", "", "four"));
    assert!(!folder.path().join("two").exists());
}
