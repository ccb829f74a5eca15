//! Tests of what goes into the blocks of a recording.

use super::code_list::tests::{header, load};
use super::*;
use std::fs::OpenOptions;
use std::io::Write;

/// A jitdump of this process that has `one` at 0x1000, and a recording of it.
struct Recorded {
    folder: tempfile::TempDir,
    code: GeneratedCode,
    segment: SegmentEncoder,
}

fn own() -> Pid {
    Pid(std::process::id())
}

impl Recorded {
    fn new() -> Self {
        let this = Self {
            folder: tempfile::tempdir().unwrap(),
            code: GeneratedCode::default(),
            segment: SegmentEncoder::new(0, UnixNanos(0)),
        };
        this.append(&[header(0, 0), load(10, 0x1000, "one", 64)].concat());
        this
    }

    fn path(&self) -> Rc<str> {
        self.folder.path().join("jit-1.dump").to_str().unwrap().into()
    }

    fn append(&self, bytes: &[u8]) {
        let file = OpenOptions::new().append(true).create(true).open(&*self.path());
        file.unwrap().write_all(bytes).unwrap();
    }

    fn hit(&mut self, address: u64) {
        let path = self.path();
        self.code.hit(own(), address, Some(&path));
    }

    /// Returns the start, time and name of each function of the next block.
    fn block(&mut self) -> Vec<(u64, u64, String)> {
        let unix = |time| UnixNanos(time + 1000);
        self.code
            .add_to_block(&mut self.segment, false, || 500, unix)
            .unwrap();
        let functions = std::mem::take(&mut self.segment.generated);
        let seen = |function: &GeneratedFunction| {
            let name = function.name.map(|name| self.segment.profile.text(name));
            assert_eq!(function.pid, own());
            (
                function.range.start,
                function.latest.0,
                name.unwrap_or_default().to_owned(),
            )
        };
        functions.iter().map(seen).collect()
    }
}

#[test]
fn functions_are_in_every_segment_that_needs_them() {
    let mut recorded = Recorded::new();
    let one = (0x1000, 1010, "one".to_owned());
    assert_eq!(recorded.block(), []);
    recorded.hit(0x1010);
    recorded.hit(0x2010);
    assert_eq!(recorded.block(), std::slice::from_ref(&one));
    recorded.hit(0x1020);
    assert_eq!(recorded.block(), []);
    recorded.code.begin_segment();
    assert_eq!(recorded.block(), []);
    recorded.hit(0x1020);
    assert_eq!(recorded.block(), [one]);
}

/// A program lists a function later than it runs it.
#[test]
fn late_functions_follow_their_samples() {
    let mut recorded = Recorded::new();
    recorded.hit(0x2010);
    assert_eq!(recorded.block(), []);
    recorded.code.begin_segment();
    recorded.append(&load(20, 0x2000, "two", 64));
    recorded.append(&load(30, 0x3000, "three", 64));
    assert_eq!(recorded.block(), [(0x2000, 1020, "two".to_owned())]);
}

#[test]
fn another_program_ends_all_functions() {
    let mut recorded = Recorded::new();
    recorded.code.execute(own(), 5);
    assert_eq!(recorded.block(), []);
    recorded.hit(0x1010);
    recorded.block();
    recorded.code.execute(own(), 40);
    assert_eq!(recorded.block(), [(0, 1040, String::new())]);
}

#[test]
fn only_jitdumps_are_markers() {
    assert_eq!(
        jitdump_path("/tmp/x/jit-12.dump").as_deref(),
        Some("/tmp/x/jit-12.dump")
    );
    for path in [
        "jit-12.dump",
        "/tmp/jit-.dump",
        "/tmp/jit-1a.dump",
        "/tmp/jit-1.dump (deleted)",
        "//anon",
    ] {
        assert_eq!(jitdump_path(path), None, "{path}");
    }
}
