//! Finds the line and the inlined calls of one address in the bytes of a function. The rest of the
//! function is passed over, which takes a fraction of the time of decoding it.
//!
//! The format is that of LLVM's `FunctionInfo`, `LineTable` and `InlineInfo`
//! (`llvm/DebugInfo/GSYM`), version 1 with little-endian numbers.

use crate::varint::Bytes;
use gsym::FileIndex;

/// The kinds of the parts of a record.
const LINE_TABLE: u32 = 1;
const INLINE_INFO: u32 = 2;
/// The operations of a line table. Greater numbers advance address and line, and end a row.
const END: u8 = 0;
const SET_FILE: u8 = 1;
const ADVANCE_ADDRESS: u8 = 2;
const ADVANCE_LINE: u8 = 3;
const FIRST_SPECIAL: u8 = 4;
/// The deepest inlining that is read of a GSYM.
pub const MAX_DEPTH: usize = 256;

/// The parts of a function's record that frames need.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRecord<'a> {
    lines: Option<&'a [u8]>,
    inlined: Option<&'a [u8]>,
}

/// The line and the inlined calls of an address.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    pub file: FileIndex,
    pub line: u32,
    /// The inlined calls around the address, the outermost first.
    pub calls: Vec<ScannedCall>,
    /// The number of inlined calls in the function.
    pub call_count: usize,
}

/// An inlined call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedCall {
    /// The number of the call in the order of the tree, from 0.
    pub number: usize,
    /// The position of its name in the table of strings.
    pub name: u32,
    pub call_file: FileIndex,
    pub call_line: u32,
}

impl<'a> FunctionRecord<'a> {
    /// Finds the parts of the record at the start of `bytes`. Returns `None` if it is cut, or has a
    /// part twice.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (_size, _name) = (rest.fixed()?, rest.fixed()?);
        let mut record = Self {
            lines: None,
            inlined: None,
        };
        loop {
            let (kind, length) = (rest.fixed()?, rest.fixed()?);
            let part = rest.bytes(length as usize)?;
            let before = match kind {
                0 => return part.is_empty().then_some(record),
                LINE_TABLE => record.lines.replace(part),
                INLINE_INFO => record.inlined.replace(part),
                _ => None,
            };
            if before.is_some() {
                return None;
            }
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        length(self.lines) + length(self.inlined)
    }

    /// Returns the line and the inlined calls of an address of the function, which begins at
    /// `start`. Returns `None` if the record is damaged.
    pub fn scan(&self, start: u64, address: u64) -> Option<Scanned> {
        let mut found = Scanned::default();
        if let Some(lines) = self.lines {
            (found.file, found.line) = line_at(Bytes(lines), start, address)?;
        }
        if let Some(inlined) = self.inlined {
            let mut scan = Scan {
                bytes: Bytes(inlined),
                address,
                nodes: 0,
                path: Vec::new(),
                innermost: None,
                found: Vec::new(),
            };
            if !scan.node(start)? || !scan.bytes.0.is_empty() {
                return None;
            }
            found.call_count = scan.nodes - 1;
            found.calls = scan.found;
        }
        Some(found)
    }
}

/// Returns the file and line of the last row at or before an address.
fn line_at(mut bytes: Bytes<'_>, start: u64, address: u64) -> Option<(FileIndex, u32)> {
    let (least, most) = (bytes.signed()?, bytes.signed()?);
    let range = most
        .checked_sub(least)?
        .checked_add(1)
        .filter(|range| *range > 0)?;
    let mut line = i64::from(bytes.small()?);
    let mut file = FileIndex::new(1);
    let mut at = start;
    let mut found = (FileIndex::ZERO, 0);
    loop {
        match bytes.byte()? {
            END => return Some(found),
            SET_FILE => {
                file = FileIndex::new(bytes.small()?);
                continue;
            }
            ADVANCE_LINE => {
                line = line.checked_add(bytes.signed()?)?;
                continue;
            }
            ADVANCE_ADDRESS => at = at.checked_add(bytes.number()?)?,
            special => {
                let step = i64::from(special - FIRST_SPECIAL);
                line = line.checked_add(least.checked_add(step % range)?)?;
                at = at.checked_add(u64::try_from(step / range).ok()?)?;
            }
        }
        if at > address {
            return Some(found);
        }
        found = (file, u32::try_from(line).ok()?);
    }
}

/// A pass over the tree of inlined calls.
struct Scan<'a> {
    bytes: Bytes<'a>,
    address: u64,
    /// The number of nodes so far. The first one is the function.
    nodes: usize,
    /// The calls around the node that is read.
    path: Vec<ScannedCall>,
    /// The start and the number of the innermost node that contains the address, so far.
    innermost: Option<(u64, usize)>,
    /// The calls around that node, and the node.
    found: Vec<ScannedCall>,
}

impl Scan<'_> {
    /// Reads a node and those in it, whose addresses count from `base`. Returns false at the end of
    /// a list of nodes.
    fn node(&mut self, base: u64) -> Option<bool> {
        let ranges = self.bytes.count()?;
        if ranges == 0 {
            return Some(false);
        }
        let mut first = None;
        let mut around = None;
        for _ in 0..ranges {
            let start = base.checked_add(self.bytes.number()?)?;
            let end = start.checked_add(self.bytes.number()?)?;
            first.get_or_insert(start);
            if (start..end).contains(&self.address) {
                around = Some(start);
            }
        }
        let has_children = self.bytes.byte()? != 0;
        let name = self.bytes.fixed()?;
        let (call_file, call_line) = (self.bytes.small()?, self.bytes.small()?);
        let number = self.nodes;
        self.nodes += 1;
        if let Some(call) = number.checked_sub(1) {
            self.path.push(ScannedCall {
                number: call,
                name,
                call_file: FileIndex::new(call_file),
                call_line,
            });
        }
        // A call that starts later is an inner one, as in a decoded function.
        let node = around.map(|start| (start, number));
        if node > self.innermost {
            self.innermost = node;
            self.found.clone_from(&self.path);
        }
        if has_children {
            if self.path.len() >= MAX_DEPTH {
                return None;
            }
            while self.node(first?)? {}
        }
        if number > 0 {
            self.path.pop();
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_table::AddressTable;
    use gsym::{AddressRange, FileEntry, Function, Gsym, GsymBuilder, InlineNode, LineEntry};

    fn node(start: u64, end: u64, line: u32, children: Vec<InlineNode>) -> InlineNode {
        InlineNode {
            ranges: vec![AddressRange::new(start, end)],
            name: b"inner".to_vec(),
            call_file: FileIndex::new(1),
            call_line: line,
            children,
        }
    }

    fn sample() -> Vec<u8> {
        let mut builder = GsymBuilder::new();
        let file = builder.add_file(FileEntry::new("/src", "a.c")).unwrap();
        let inner = node(0x1010, 0x1018, 4, vec![node(0x1010, 0x1014, 5, vec![])]);
        let root = node(0x1000, 0x1400, 0, vec![inner, node(0x1200, 0x1300, 6, vec![])]);
        let lines = [
            (0x1000, 10),
            (0x1004, 9),
            (0x1010, 1),
            (0x1020, 1000),
            (0x1300, 2),
        ];
        builder
            .add_function(Function {
                lines: lines.map(|(at, line)| LineEntry::new(at, file, line)).to_vec(),
                inline: Some(root),
                ..Function::new(AddressRange::new(0x1000, 0x1400), b"outer")
            })
            .unwrap();
        builder.to_bytes().unwrap()
    }

    fn record(bytes: &[u8]) -> &[u8] {
        let table = AddressTable::of(&Gsym::parse(bytes).unwrap()).unwrap();
        table.record(bytes, 0).unwrap()
    }

    #[test]
    fn innermost_calls_and_lines_are_found() {
        let bytes = sample();
        let record = FunctionRecord::read(record(&bytes)).unwrap();
        let at = |address| {
            let found = record.scan(0x1000, address).unwrap();
            assert_eq!(found.call_count, 3);
            let calls: Vec<_> = found
                .calls
                .iter()
                .map(|call| (call.number, call.call_line))
                .collect();
            (found.line, calls)
        };
        assert_eq!(at(0x1000), (10, vec![]));
        assert_eq!(at(0x100f), (9, vec![]));
        assert_eq!(at(0x1010), (1, vec![(0, 4), (1, 5)]));
        assert_eq!(at(0x1014), (1, vec![(0, 4)]));
        assert_eq!(at(0x1018), (1, vec![]));
        assert_eq!(at(0x12ff), (1000, vec![(2, 6)]));
        assert_eq!(at(0x13ff), (2, vec![]));
    }

    #[test]
    fn damaged_records_end_the_scan() {
        let bytes = sample();
        let good = record(&bytes);
        for length in 0..good.len() {
            if let Some(record) = FunctionRecord::read(&good[..length]) {
                record.scan(0x1000, 0x1010);
            }
        }
        let mut seed = 11u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bad = good.to_vec();
            let at = (seed >> 33) as usize % bad.len();
            bad[at] = (seed >> 20) as u8;
            if let Some(record) = FunctionRecord::read(&bad) {
                record.scan(0x1000, 0x1010);
            }
        }
        // A list of children that never ends is cut by the end of the record.
        assert!(FunctionRecord::read(&[0xff; 64]).is_none());
    }
}
