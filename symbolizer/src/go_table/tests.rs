//! Small made tables of each format, and damaged ones.

use super::*;
use std::time::{Duration, Instant};

/// The address of the table, of the module's record, and of the code.
const TABLE: u64 = 0x50_0000;
const RECORD: u64 = 0x60_0000;
const TEXT: u64 = 0x40_1000;

const NAMES: &[u8] = b"\0main.main\0main.outer\0main.inner\0main.other\0";
const PATHS: &[u8] = b"/src/main.go\0/src/lib.go\0";
/// Tables of values: they begin at offset 1, because 0 means none.
const FILES: u32 = 1;
const LINES: u32 = 4;
const CALLS: u32 = 15;
const VALUES: &[u8] = &[
    0, // no table
    2, 32, 0, // file 0 for 32 bytes
    20, 8, 20, 8, 2, 8, 15, 8, 0, 0, 0, // lines 9, 19, 20, 12
    0, 8, 2, 8, 2, 8, 3, 8, 0, // no call, then calls 0 and 1, none
];

/// A table and the record of its module.
struct Made {
    table: Vec<u8>,
    record: Vec<u8>,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn long_words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Makes a table with `main.main` of 32 bytes, into which `main.outer` is inlined, and
/// `main.inner` into that; and with `main.other`, which has no lines.
fn made(format: Format) -> Made {
    let has_offsets = format != Format::Go116;
    let start = if has_offsets { 0 } else { TEXT };
    // Pairs of entries and places of records, and the end.
    let (first, second) = (40u64, 136u64);
    let list = [start, first, start + 0x40, second, start + 0x60];
    let mut records = if has_offsets {
        let list: Vec<u32> = list.iter().map(|word| *word as u32).collect();
        words(&list)
    } else {
        long_words(&list)
    };
    let calls = tree(format);
    let calls_at = RECORD + 8 * 48;
    for (at, entry, name, has_lines) in [(first, start, 1, true), (second, start + 0x40, 33, false)] {
        records.resize(at as usize, 0);
        let entry = if has_offsets {
            words(&[entry as u32])
        } else {
            long_words(&[entry])
        };
        records.extend(entry);
        let tables = if has_lines {
            [FILES, LINES, 3, 0]
        } else {
            [0, 0, 0, 0]
        };
        records.extend(words(&[name, 0, 0, 0]));
        records.extend(words(&tables));
        if format == Format::Go120 {
            records.extend(words(&[5]));
        }
        records.extend([0, 0, 0, if has_lines { 4 } else { 0 }]);
        if !has_lines {
            continue;
        }
        records.extend(words(&[0, 0, CALLS]));
        if has_offsets {
            records.extend(words(&[u32::MAX, u32::MAX, u32::MAX, 8]));
        } else {
            records.resize(records.len().next_multiple_of(8), 0);
            records.extend(long_words(&[0, 0, 0, calls_at]));
        }
    }
    let mut table = words(&[match format {
        Format::Go116 => 0xffff_fffa,
        Format::Go118 => 0xffff_fff0,
        Format::Go120 => 0xffff_fff1,
    }]);
    table.extend([0, 0, 1, 8]);
    let tables = [NAMES, &words(&[0, 13]), PATHS, VALUES, &records].map(<[u8]>::to_vec);
    let mut at = if has_offsets { 72 } else { 64 };
    let mut header = vec![2, 2];
    header.extend(has_offsets.then_some(TEXT));
    for part in &tables {
        header.push(at);
        at += part.len() as u64;
    }
    table.extend(long_words(&header));
    let records_at = TABLE + header.last().copied().unwrap();
    table.extend(tables.concat());
    let mut record = vec![0; 48];
    record[0] = TABLE;
    record[16] = records_at;
    record[17] = 3;
    record[22] = TEXT;
    record[23] = TEXT + 0x60;
    record[if format == Format::Go118 { 38 } else { 40 }] = calls_at - 8;
    let mut record = long_words(&record);
    record.extend(calls);
    Made { table, record }
}

/// Returns the inlined calls: `main.outer` in line 9, and in its line 19 `main.inner`.
fn tree(format: Format) -> Vec<u8> {
    if format == Format::Go120 {
        // The names, the offsets of code with the lines of the calls, the declarations.
        return words(&[0, 11, 0, 18, 0, 22, 8, 30]);
    }
    words(&[0xffff, 0, 9, 11, 0, 0, 0, 19, 22, 8])
}

impl Made {
    fn open(&self) -> Option<GoTable<'_>> {
        let header = Header::read(&self.table)?;
        let image = Image::made(vec![(TABLE, &self.table), (RECORD, &self.record)], Vec::new());
        let addresses = TABLE..TABLE + self.table.len() as u64;
        let code = CodeRanges::from_range(TEXT..TEXT + 0x1000);
        GoTable::new(header, &addresses, (image, 0x1000), || Some(TEXT), &code)
    }
}

/// Returns the frames at an address, innermost first: names, files and lines.
fn frames(table: &GoTable<'_>, at: u64) -> Vec<(String, String, u32)> {
    let function = table.number_at(at).and_then(|number| table.function(number));
    let Some(function) = function else {
        return Vec::new();
    };
    let offset = function.offset(at).unwrap();
    let shown = |name: &Name, place: Option<Place>| {
        let place = place.and_then(|place| table.resolve(place));
        let (file, line) = place.map_or(Default::default(), |(file, line)| (file.to_string(), line));
        (name.readable.to_string(), file, line)
    };
    let segment = function.layout.segment_at(offset);
    let mut place = segment.and_then(|number| Some(function.layout.row(number)?.1));
    let mut frames = Vec::new();
    for copy in function.layout.copies_at(offset) {
        frames.push(shown(&table.name(copy.name).unwrap(), place));
        place = copy.call;
    }
    frames.push(shown(&function.name, place));
    frames
}

#[test]
fn every_format_has_functions_lines_and_inlined_calls() {
    for format in [Format::Go116, Format::Go118, Format::Go120] {
        let made = made(format);
        let table = made.open().unwrap();
        let frame = |name: &str, line| (name.to_owned(), "/src/main.go".to_owned(), line);
        let expected = [
            (0, vec![frame("main.main", 9)]),
            (8, vec![frame("main.outer", 19), frame("main.main", 9)]),
            (
                23,
                vec![
                    frame("main.inner", 20),
                    frame("main.outer", 19),
                    frame("main.main", 9),
                ],
            ),
            (31, vec![frame("main.main", 12)]),
        ];
        for (offset, expected) in expected {
            assert_eq!(frames(&table, TEXT + offset), expected, "{format:?} {offset}");
        }
        let function = table.function(table.number_at(TEXT).unwrap()).unwrap();
        assert_eq!(function.range(), TEXT..TEXT + 32, "padding is no code");
        let rows: Vec<_> = function.layout.rows().map(|(range, _)| range).collect();
        assert_eq!(rows, [0..8, 8..16, 16..24, 24..32]);
        let declared = function.layout.declared.and_then(|place| table.resolve(place));
        assert_eq!(
            declared.map(|declared| declared.1),
            (format == Format::Go120).then_some(5)
        );
        let parts: Vec<_> = function
            .layout
            .copies
            .iter()
            .map(|copy| copy.parts.clone())
            .collect();
        assert_eq!(parts.concat(), [8..24, 16..24]);
        // A function without lines lasts until the next one.
        let other = table.function(table.number_at(TEXT + 0x40).unwrap()).unwrap();
        assert_eq!(
            (&*other.name.readable, other.range()),
            ("main.other", TEXT + 0x40..TEXT + 0x60)
        );
        assert!(other.layout.segments.is_empty());
        assert!(table.number_at(TEXT - 1).is_none() && table.number_at(TEXT + 0x60).is_none());
        assert_eq!(table.starts_named("main.other"), [TEXT + 0x40]);
        assert_eq!(table.source_files().len(), 2);
    }
}

#[test]
fn lines_do_not_need_the_record_of_the_module() {
    for format in [Format::Go118, Format::Go120] {
        let mut made = made(format);
        made.record.clear();
        let found = frames(&made.open().unwrap(), TEXT + 23);
        assert_eq!(found, [("main.main".into(), "/src/main.go".into(), 20)]);
    }
}

#[test]
fn calls_around_each_other_are_no_calls() {
    let mut made = made(Format::Go118);
    let outer = made.record.len() - 40;
    made.record[outer..outer + 2].copy_from_slice(&[1, 0]);
    let found = frames(&made.open().unwrap(), TEXT + 23);
    assert_eq!(found, [("main.main".into(), "/src/main.go".into(), 20)]);
}

/// Asks for everything that a table has.
fn ask(made: &Made) {
    let Some(table) = made.open() else { return };
    for number in table.numbers() {
        let Some(function) = table.function(number) else {
            continue;
        };
        let size = function.layout.size;
        for copy in &function.layout.copies {
            assert!(
                copy.parts
                    .iter()
                    .all(|part| part.start < part.end && part.end <= size)
            );
        }
        assert!(
            function
                .layout
                .rows()
                .all(|(row, _)| row.start < row.end && row.end <= size)
        );
        for at in (function.start..).take(70) {
            let _ = frames(&table, at);
        }
    }
    let _ = (table.source_files(), table.starts_named("main.main"));
}

#[test]
fn damaged_tables_are_read_in_time() {
    let began = Instant::now();
    for format in [Format::Go116, Format::Go118, Format::Go120] {
        for length in 0..made(format).table.len() {
            let mut cut = made(format);
            cut.table.truncate(length);
            ask(&cut);
        }
        for part in 0..2 {
            let bytes = |made: &mut Made| {
                std::mem::take(if part == 0 {
                    &mut made.table
                } else {
                    &mut made.record
                })
            };
            let original = bytes(&mut made(format));
            for at in 0..original.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff]
                    .into_iter()
                    .chain((0..8).map(|bit| original[at] ^ (1 << bit)))
                {
                    let mut damaged = made(format);
                    let bytes = if part == 0 {
                        &mut damaged.table
                    } else {
                        &mut damaged.record
                    };
                    bytes[at] = value;
                    ask(&damaged);
                }
            }
        }
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// A function of a megabyte, with another chain of inlined calls at each byte.
#[test]
fn deep_chains_of_calls_are_bounded() {
    const SIZE: u32 = 1 << 20;
    let count: u32 = 400;
    let mut calls = Vec::new();
    for index in 0..count {
        calls.extend(words(&[index.checked_sub(2).unwrap_or(0xffff), 0, 1, 11, 0]));
    }
    let mut values = vec![0, 2, 0xff, 0xff, 0xff, 0x7f, 0, 2, 0xff, 0xff, 0xff, 0x7f, 0];
    let calls_at = values.len() as u32;
    // The deepest calls of two chains in turn.
    values.extend([0xa0, 6, 1]);
    for _ in 0..SIZE / 2 {
        values.extend([1, 1, 2, 1]);
    }
    values.push(0);
    let header = Header {
        format: Format::Go118,
        functions: 1,
        files: 1,
        text: None,
        names: NAMES,
        unit_files: &[0; 4],
        paths: PATHS,
        values: &values,
        records: &[],
        records_offset: 0,
    };
    let record = Record {
        name: 1,
        file_values: 1,
        line_values: 7,
        inlined_values: calls_at,
        inlined_calls: Some(0),
        unit: 0,
        declared_line: 0,
    };
    let began = Instant::now();
    let layout = Layout::read(&header, &record, Some(&calls), SIZE);
    assert_eq!(layout.copies.len(), 400);
    let parts: usize = layout.copies.iter().map(|copy| copy.parts.len()).sum();
    assert!(parts <= 8 * SIZE as usize, "{parts}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
