//! Tests of lists that grow while they are read.

use super::*;
use crate::generated_code::code_file::ProcessFiles;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

/// A file that a program writes.
struct Written {
    folder: TempDir,
}

impl Written {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("list")).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("list")
    }

    fn append(&self, bytes: &[u8]) {
        let file = OpenOptions::new().append(true).open(self.path());
        file.unwrap().write_all(bytes).unwrap();
    }

    fn list(&self, kind: ListKind, floor: u64) -> CodeList {
        let own = ProcessFiles::open(std::process::id().cast_signed()).unwrap();
        let file = own.file(self.path().to_str().unwrap()).unwrap();
        CodeList::new(file, kind, floor)
    }
}

fn names(list: &CodeList) -> Vec<Option<String>> {
    let names = list.code().iter().map(|code| list.name(code));
    names.map(|name| name.map(|name| name.name)).collect()
}

#[test]
fn lines_are_read_when_they_are_whole() {
    let written = Written::new();
    let mut list = written.list(ListKind::PerfMap, 0);
    written.append(b"10 8 one\nbad line\n20 8 tw");
    list.update(10, || 100);
    assert_eq!(names(&list), [Some("one".to_owned())]);
    written.append(b"o\n");
    list.update(10, || 200);
    assert_eq!(names(&list)[1], Some("two".to_owned()));
    list.update(10, || 300);
    written.append(b"30 8 three\n");
    list.update(10, || 400);
    // The third line may have waited in a buffer since the second one was written, after 100.
    let times: Vec<_> = list
        .code()
        .iter()
        .map(|code| (code.earliest, code.latest))
        .collect();
    assert_eq!(times, [(0, 100), (0, 200), (100, 400)]);
    written.append(b"40 8 four\n50 8 five\n");
    list.update(4, || 500);
    assert_eq!(list.code().len(), 4);
}

/// Functions of a long list are not newer than the first part of it.
#[test]
fn long_list_is_read_in_parts() {
    let written = Written::new();
    written.append(b"10 8 one\n".repeat(MAX_READ / 9 + CHUNK).as_slice());
    let mut list = written.list(ListKind::PerfMap, 7);
    assert!(list.update(usize::MAX, || 100));
    let first = list.code().len();
    assert!(!list.update(usize::MAX, || 200));
    assert_eq!(list.code().len(), MAX_READ / 9 + CHUNK);
    assert_eq!((list.code()[first].earliest, list.code()[first].latest), (7, 200));
    written.append(b"20 8 two\n");
    list.update(usize::MAX, || 300);
    let last = list.code().last().unwrap();
    assert_eq!((last.earliest, last.latest), (7, 300));
}

#[test]
fn changed_lines_give_no_names() {
    let written = Written::new();
    written.append(b"10 8 one\n20 8 two\n");
    let mut list = written.list(ListKind::PerfMap, 0);
    list.update(10, || 1);
    std::fs::write(written.path(), "11 8 new\n20 8 two\n").unwrap();
    assert!(!list.is_replaced());
    assert_eq!(names(&list), [None, Some("two".to_owned())]);
    std::fs::write(written.path(), "").unwrap();
    assert!(list.is_replaced());
    assert_eq!(names(&list), [None, None]);
}

fn fields(small: &[u32], large: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = small.iter().flat_map(|field| field.to_ne_bytes()).collect();
    bytes.extend(large.iter().flat_map(|field| field.to_ne_bytes()));
    bytes.extend(rest);
    bytes
}

pub(in crate::generated_code) fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
    fields(&[kind, body.len() as u32 + 16], &[time], body)
}

pub(in crate::generated_code) fn load(time: u64, start: u64, name: &str, code: usize) -> Vec<u8> {
    let rest = [name.as_bytes(), b"\0", &vec![0x90; code]].concat();
    record(0, time, &fields(&[1, 1], &[start, start, code as u64, 0], &rest))
}

fn debug_info(start: u64, lines: &[(u64, u32, &[u8])]) -> Vec<u8> {
    let mut body = fields(&[], &[start, lines.len() as u64], &[]);
    for (address, line, file) in lines {
        body.extend(fields(&[], &[*address], &fields(&[*line, 0], &[], file)));
        body.push(0);
    }
    record(2, 5, &body)
}

pub(in crate::generated_code) fn header(pad: u32, flags: u64) -> Vec<u8> {
    fields(&[0x4A69_5444, 1, 40, 62, pad, 1], &[0, flags], &[])
}

/// The end and start of every code in the order of the list, with its time.
fn seen(list: &CodeList) -> Vec<(u64, u64, Option<String>)> {
    let code = list.code().iter().zip(names(list));
    code.map(|(code, name)| (code.start, code.latest, name)).collect()
}

#[test]
fn functions_move_with_their_names() {
    let written = Written::new();
    let mut list = written.list(ListKind::Jitdump, 0);
    let moved = record(1, 30, &fields(&[1, 1], &[0, 0x1000, 0x9000, 64, 0], &[]));
    let all = [
        header(0, 0),
        load(10, 0x1000, "one", 64),
        record(9, 11, &[1, 2, 3]),
        // The code does not fit into what is read at once.
        load(20, 0x2000, "two", CHUNK * 2),
        moved,
    ]
    .concat();
    let (first, rest) = all.split_at(all.len() - 7);
    written.append(first);
    list.update(10, || 100);
    let name = |name: &str| Some(name.to_owned());
    let loads = [(0x1000, 10, name("one")), (0x2000, 20, name("two"))];
    assert_eq!(seen(&list), loads);
    written.append(rest);
    list.update(10, || 200);
    let moves = [(0x1000, 30, None), (0x9000, 30, name("one"))];
    assert_eq!(seen(&list), [loads, moves].concat());
}

#[test]
fn lines_without_sense_are_not_used() {
    let lines = |pad: u32, lines: &[(u64, u32, &[u8])]| {
        let written = Written::new();
        let mut list = written.list(ListKind::Jitdump, 0);
        let all = [
            header(pad, 0),
            debug_info(0x1000, lines),
            load(9, 0x1000, "one", 64),
        ];
        written.append(&all.concat());
        list.update(10, || 100);
        list.name(&list.code()[0]).unwrap().lines
    };
    let right = (0x1004, 7, &b"a.js"[..]);
    assert_eq!(lines(0, &[right]), [(4, "a.js".to_owned(), 7)]);
    assert_eq!(
        lines(0xDEAD_BEEF, &[(0x1044, 7, b"a.js")]),
        [(4, "a.js".to_owned(), 7)]
    );
    for wrong in [
        (0x1040, 1, &b"a.js"[..]),
        (0xfff, 1, b"a.js"),
        (0x1008, 1, b"\xceS\x03"),
        (0x1008, 1, b"a\x1bb"),
        (0x1008, 1, b""),
    ] {
        assert_eq!(lines(0, &[right, wrong]), [], "{wrong:?}");
    }
}

#[test]
fn times_of_other_clocks_are_not_used() {
    let written = Written::new();
    written.append(&[header(0, 1), load(1 << 60, 0x1000, "one", 64)].concat());
    let mut list = written.list(ListKind::Jitdump, 7);
    list.update(10, || 100);
    assert_eq!((list.code()[0].earliest, list.code()[0].latest), (7, 100));
}

#[test]
fn other_files_have_no_functions() {
    for bytes in [
        &[0; 100][..],
        &header(0, 0),
        b"",
        &[header(0, 0), vec![0; 64]].concat(),
    ] {
        let written = Written::new();
        written.append(bytes);
        let mut list = written.list(ListKind::Jitdump, 0);
        list.update(10, || 1);
        list.update(10, || 2);
        assert!(list.code().is_empty());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// A list may be anything, and may change between two readings.
    #[test]
    fn any_list_is_read_without_harm(
        parts in proptest::collection::vec(part(), 0..20),
        cut in 0usize..400,
        is_map in proptest::prelude::any::<bool>(),
    ) {
        let written = Written::new();
        let kind = if is_map { ListKind::PerfMap } else { ListKind::Jitdump };
        let mut list = written.list(kind, 0);
        let whole = [header(0, 0), parts.concat()].concat();
        let (first, rest) = whole.split_at(cut.min(whole.len()));
        for part in [first, rest] {
            written.append(part);
            list.update(10, || 1);
        }
        std::fs::write(written.path(), parts.concat()).unwrap();
        for code in list.code() {
            assert!(code.start.checked_add(code.size).is_some());
            let _ = list.name(code);
        }
        assert!(list.code().len() <= 11);
    }
}

fn part() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let address = prop_oneof![0u64..0x3000, any::<u64>()];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (address.clone(), "[a-z \\n]{0,9}").prop_map(|(at, name)| format!("{at:x} 8 {name}\n").into()),
        (address.clone(), 0usize..90).prop_map(|(at, size)| load(3, at, "name", size)),
        address
            .clone()
            .prop_map(|at| debug_info(at, &[(at, 1, b"f"), (at, 2, b"\xff")])),
        (address.clone(), address).prop_map(|(from, to)| record(
            1,
            4,
            &fields(&[1, 1], &[0, from, to, 9, 0], &[])
        )),
    ]
}
