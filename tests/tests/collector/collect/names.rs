//! Thread names in invalid UTF-8: each is saved and passed on byte by byte.

use crate::collector::{Collector, CorePattern, cannot, quiet, until};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Names, and the kernel's form of each in a pattern.
const NAMES: [(&[u8], &[u8]); 8] = [
    (b"Verarbeitungs\xc3", b"Verarbeitungs\xc3"),
    (b"\xff", b"\xff"),
    (b"a\xf0\x9f\x92", b"a\xf0\x9f\x92"),
    (b"--help", b"--help"),
    (b" two  blanks ", b" two  blanks "),
    (b"line\nbreak\x1b[1m", b"line\nbreak\x1b[1m"),
    (b"", b"!"),
    (b"../x", b"..!x"),
];

/// Crashes under each name, and returns the number of complete crashes in the list.
fn crash_under_each(collector: &Collector) -> usize {
    for (name, _) in NAMES {
        let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut named = crate::collect::program("named", "../collect/named.c");
        quiet(named.arg(hex).current_dir(collector.folder()))
            .status()
            .unwrap();
    }
    until("all are in the list", || collector.list().len() == NAMES.len());
    let whole = |crash: &&serde_json::Value| crash["complete"] == true && crash["signal"] == 11;
    collector.list().iter().filter(whole).count()
}

#[test]
fn previous_handler_gets_thread_names_unchanged() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let script = collector.folder().join("theirs");
    let said = collector.folder().join("said");
    let text = format!(
        "#!/bin/sh\ncat > /dev/null\nprintf '%s/%s/' \"$#\" \"$1\" >> {}\n",
        said.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let _before = CorePattern::set(&format!("|{} %e", script.display()));
    collector.start();
    assert_eq!(crash_under_each(&collector), NAMES.len());
    let expected: Vec<u8> = NAMES
        .iter()
        .flat_map(|(_, name)| [b"1/", *name, b"/"].concat())
        .collect();
    until("their handler has run each time", || {
        fs::read(&said).is_ok_and(|said| said.len() >= expected.len())
    });
    let said = fs::read(&said).unwrap();
    assert!(said == expected, "{}", said.escape_ascii());
}

#[test]
fn core_files_have_each_name_byte_by_byte() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let cores = collector.folder().join("cores");
    fs::create_dir(&cores).unwrap();
    let _before = CorePattern::set(&format!("{}/c.%e", cores.display()));
    collector.start();
    assert_eq!(crash_under_each(&collector), NAMES.len());
    for (_, name) in NAMES {
        let name = OsString::from_vec([b"c.", name].concat());
        assert!(cores.join(&name).is_file(), "{}", Path::new(&name).display());
    }
}
