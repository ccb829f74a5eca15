//! Malicious, truncated and randomly changed files are read or refused. Nothing panics, hangs, or
//! writes outside of the target.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bundle::core::Core;
use backtrail_bundle::import::{self, PerfImport};
use backtrail_bundle::{Bundle, CancelToken, Overwrite, SharedBytes};
use std::io::Write;
use std::path::{Path, PathBuf};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt");

/// Returns a capture's bytes, or `None` if the captures are absent.
fn capture(path: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(CAPTURES).join(path);
    if !path.exists() {
        println!("skipped: {} is absent", path.display());
    }
    std::fs::read(path).ok()
}

/// A deterministic generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    /// Changes up to 4 positions: a bit, a byte, or a word set to an extreme value.
    fn mutate(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(3) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.below(256) as u8,
                _ => {
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].fill([0, 0xff, 0x7f][self.below(3)]);
                }
            }
        }
    }
}

fn import_perf(dir: &Path, bytes: &[u8]) -> Result<(), backtrail_bundle::Error> {
    let data = dir.join("perf.data");
    std::fs::write(&data, bytes).unwrap();
    let request = PerfImport {
        data,
        core: None,
        symfs: vec![dir.to_owned()],
    };
    import::perf(
        &request,
        &dir.join("bundle"),
        Overwrite::Bundle,
        &CancelToken::default(),
    )
    .map(drop)
}

#[test]
fn truncated_perf_data_is_refused() {
    let Some(bytes) = capture("hase/20180404/loopy/loopy-20180404T162955.perf") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    // The data and the feature table end at 14 KiB. A reader can do without the features that
    // follow. (The perf crate's tests truncate at every length.)
    let (data_end, mut refused) = (14_488, 0);
    for end in (0..bytes.len()).step_by(211) {
        let imported = import_perf(dir.path(), &bytes[..end]);
        if end < data_end {
            assert!(imported.unwrap_err().is_malformed(), "{end}");
            refused += 1;
        }
    }
    assert!(refused > 60);
}

#[test]
fn changed_perf_data_is_read_or_refused() {
    let Some(bytes) = capture("hase/20180404/control_flow/control_flow-20180404T163033.perf") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    for _ in 0..200 {
        let mut changed = bytes.clone();
        // Features make up most of the file, but most changes should hit the headers and records.
        let part = if random.below(4) == 0 {
            changed.len()
        } else {
            12_500
        };
        random.mutate(&mut changed[..part]);
        refused += usize::from(import_perf(dir.path(), &changed).is_err());
    }
    assert!((10..199).contains(&refused), "{refused} of 200 refused");
}

#[test]
fn changed_or_truncated_core_is_read_or_refused() {
    let Some(bytes) = capture("hase/20180404/loopy/loopy-20180404T162955.coredump") else {
        return;
    };
    let bytes = &bytes[..0x4000];
    for end in 0..0x1000 {
        let cut: SharedBytes = bytes[..end].to_vec().into();
        let notes_end = 0x1c8 + 0xb04;
        assert_eq!(Core::parse(cut, "core").is_ok(), end >= notes_end, "{end:#x}");
    }
    let mut random = Random(0xdead_beef);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut changed = bytes.to_vec();
        random.mutate(&mut changed[..0xd00]);
        if let Ok(core) = Core::parse(changed.into(), "core") {
            let mut out = [0; 64];
            for thread in &core.contents().threads {
                core.memory(thread.registers.pc(), &mut out);
            }
            core.memory(backtrail_pt::Avma(u64::MAX - 3), &mut out);
            read += 1;
        }
    }
    assert!((1..20_000).contains(&read), "{read}");
}

#[test]
fn changed_module_is_read_or_refused() {
    let json = PathBuf::from(CAPTURES).join("lldb/intelpt-trace/trace.json");
    let Some(module) = capture("lldb/intelpt-trace/a.out") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("bundle");
    let manifest = import::lldb(&json, &target, Overwrite::Never, &CancelToken::default()).unwrap();
    let file = target.join(manifest.processes[0].modules[0].file.as_ref().unwrap().as_str());
    let mut random = Random(77);
    for _ in 0..500 {
        let mut changed = module.clone();
        let headers = changed.len().min(0x400);
        random.mutate(&mut changed[..headers]);
        std::fs::write(&file, &changed).unwrap();
        let bundle = Bundle::open(&target).unwrap();
        if let Ok(code) = bundle.code(manifest.processes[0].pid) {
            assert!(code.iter().map(|section| section.bytes.len()).sum::<usize>() <= changed.len() * 64);
        }
    }
}

/// The members of an archive: name, type, contents.
type Members<'a> = &'a [(&'a str, tar::EntryType, &'a [u8])];

/// Builds a packed bundle with these members.
fn packed(dir: &Path, members: Members<'_>) -> PathBuf {
    let path = dir.join("hostile.btz");
    let encoder = zstd::Encoder::new(std::fs::File::create(&path).unwrap(), 1).unwrap();
    let mut archive = tar::Builder::new(encoder);
    for (name, kind, contents) in members {
        let mut header = tar::Header::new_ustar();
        // set_path refuses names that an attacker would use.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_link_name("/etc/passwd").unwrap();
        header.set_size(contents.len() as u64);
        header.set_cksum();
        archive.append(&header, *contents).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap().flush().unwrap();
    path
}

#[test]
fn archives_with_unsafe_members_are_refused() {
    use tar::EntryType;
    let dir = tempfile::tempdir().unwrap();
    let cases: [(Members<'_>, &str); 10] = [
        (&[("../escaped", EntryType::Regular, b"x")], "leads out"),
        (&[("/tmp/escaped", EntryType::Regular, b"x")], "leads out"),
        (
            &[("link", EntryType::Symlink, b"")],
            "neither a plain file nor a directory",
        ),
        (
            &[("link", EntryType::Link, b"")],
            "neither a plain file nor a directory",
        ),
        (
            &[("a", EntryType::Regular, b"x"), ("a", EntryType::Regular, b"y")],
            "occurs twice",
        ),
        (
            &[("a", EntryType::Regular, b"x"), ("a/b", EntryType::Regular, b"y")],
            "as a file and a directory",
        ),
        (
            &[
                ("a", EntryType::Regular, b"x"),
                ("a/b/c", EntryType::Regular, b"y"),
            ],
            "as a file and a directory",
        ),
        (
            &[("a/b", EntryType::Regular, b"x"), ("a", EntryType::Regular, b"y")],
            "as a file and a directory",
        ),
        (
            &[("x", EntryType::GNULongName, b"long")],
            "neither a plain file nor a directory",
        ),
        (&[("a", EntryType::Regular, b"x")], "not a bundle"),
    ];
    for (members, expected) in cases {
        let error = Bundle::open(&packed(dir.path(), members)).unwrap_err();
        assert!(
            error.is_malformed() && error.to_string().contains(expected),
            "{members:?}: {error}"
        );
    }
    assert!(!dir.path().parent().unwrap().join("escaped").exists());
}

#[test]
fn invalid_or_oversized_archives_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.btz");
    for bytes in [&b""[..], b"no archive at all", &[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(Bundle::open(&path).unwrap_err().is_malformed());
    }
    // The header alone claims 60 GiB, so it is refused before any byte is written.
    let mut header = tar::Header::new_ustar();
    header.set_path("traces/bomb").unwrap();
    header.set_size(60 << 30);
    header.set_cksum();
    std::fs::write(&path, zstd::encode_all(&header.as_bytes()[..], 1).unwrap()).unwrap();
    let error = Bundle::open(&path).unwrap_err();
    assert!(
        error.is_malformed() && error.to_string().contains("unpacks to more"),
        "{error}"
    );
}
