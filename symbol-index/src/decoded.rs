//! A function of an index, divided into the addresses with the same frames.

use crate::frame::{Frame, Frames, FunctionInfo};
use crate::names::Names;
use crate::scan::MAX_DEPTH;
use crate::sidecar::BlockFunction;
use backtrail_symbolizer::Signature;
use backtrail_symbolizer::types::Language;
use gsym::{FileIndex, Function, InlineNode};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A decoded function.
pub struct DecodedFunction {
    start: u64,
    end: u64,
    /// The function, then its inlined copies. The one around a copy precedes it.
    calls: Vec<Call>,
    /// The functions of the calls, each once.
    callees: Vec<Callee>,
    /// The source files, sorted by number, with their paths when they were asked for.
    files: Vec<(FileIndex, OnceLock<Option<Arc<str>>>)>,
    /// The addresses with the same frames, in order.
    pieces: Vec<Piece>,
    language: Option<Language>,
    /// An estimate of the memory in bytes.
    pub weight: usize,
}

/// The function, or an inlined copy in it. An index of large programs has millions of copies.
struct Call {
    /// The number of the function in `callees`.
    callee: u32,
    around: Option<NonZeroU32>,
    call_file: FileIndex,
    call_line: u32,
}

/// A function that calls of a decoded function share.
struct Callee {
    name: Box<[u8]>,
    /// The demangled name, if it does not follow from `name`.
    readable: Option<Arc<str>>,
    signature: Option<Arc<Signature>>,
    /// The function as frames have it, after the first request.
    info: OnceLock<Arc<FunctionInfo>>,
}

/// A call in the order of the tree.
struct TreeCall {
    name: Vec<u8>,
    readable: Option<Arc<str>>,
    signature: Option<Arc<Signature>>,
    around: Option<u32>,
    call_file: FileIndex,
    call_line: u32,
    depth: u32,
}

/// Addresses with the same frames.
struct Piece {
    /// The first address, from the start of the function.
    offset: u32,
    /// The innermost call.
    call: u32,
    file: FileIndex,
    line: u32,
}

impl DecodedFunction {
    /// Divides a function into pieces.
    pub fn new(function: Function, types: Option<BlockFunction<'_>>) -> Self {
        let mut calls = vec![TreeCall {
            name: function.name,
            readable: types.and_then(|types| types.readable()),
            signature: types.and_then(|types| types.signature()),
            around: None,
            call_file: FileIndex::ZERO,
            call_line: 0,
            depth: 0,
        }];
        let mut ranges = Vec::new();
        if let Some(root) = function.inline {
            add_calls(root.children, 0, &mut calls, &mut ranges);
        }
        if let Some(types) = types.filter(|types| types.inlined_count() + 1 == calls.len()) {
            for (call, signature) in calls.iter_mut().skip(1).zip(types.inlined()) {
                call.signature = signature;
            }
        }
        let (start, end) = (function.range.start, function.range.end);
        let innermost = innermost_calls(start, end, ranges);
        let pieces = pieces(start, &innermost, &function.lines);
        let lines = function.lines.iter().map(|line| line.file);
        let mut files: Vec<FileIndex> = lines.chain(calls.iter().map(|call| call.call_file)).collect();
        files.sort_unstable();
        files.dedup();
        let files: Vec<_> = files.into_iter().map(|file| (file, OnceLock::new())).collect();
        let (calls, callees) = with_callees(calls);
        let names: usize = callees.iter().map(|callee| callee.name.len()).sum();
        let weight = size_of::<Self>()
            + names
            + calls.len() * size_of::<Call>()
            + callees.len() * (size_of::<Callee>() + size_of::<FunctionInfo>() + 32)
            + pieces.len() * size_of::<Piece>()
            + files.len() * 64;
        Self {
            start,
            end,
            calls,
            callees,
            files,
            pieces,
            language: types.and_then(|types| types.language()),
            weight,
        }
    }

    /// Returns the addresses of the function.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Returns the number of the piece with an address of the function.
    pub fn piece(&self, address: u64) -> Option<usize> {
        let offset = address.saturating_sub(self.start);
        let next = self
            .pieces
            .partition_point(|piece| u64::from(piece.offset) <= offset);
        next.checked_sub(1)
    }

    /// Returns the frames of a piece.
    pub fn frames(&self, piece: Option<usize>, names: &dyn Names) -> Frames {
        let Some(piece) = piece.and_then(|number| self.pieces.get(number)) else {
            return Arc::new([]);
        };
        let mut frames = Vec::with_capacity(8);
        let (mut file, mut line) = (piece.file, piece.line);
        let mut next = Some(piece.call);
        while let Some((number, call)) =
            next.and_then(|number| Some((number, self.calls.get(number as usize)?)))
            && let Some(callee) = self.callees.get(call.callee as usize)
        {
            let path = self.path(file, names);
            frames.push(Frame {
                function: self.info(callee, names),
                line: if path.is_some() { line } else { 0 },
                file: path,
                inlined: number != 0,
            });
            (file, line) = (call.call_file, call.call_line);
            next = match (number, call.around) {
                (0, _) => None,
                (_, around) => Some(around.map_or(0, NonZeroU32::get)),
            };
        }
        frames.into()
    }

    fn info(&self, callee: &Callee, names: &dyn Names) -> Arc<FunctionInfo> {
        let read = || {
            let (name, linkage_name) = names.name(&callee.name);
            Arc::new(FunctionInfo {
                name: callee.readable.clone().unwrap_or(name),
                linkage_name,
                signature: callee.signature.clone(),
                language: self.language,
            })
        };
        callee.info.get_or_init(read).clone()
    }

    fn path(&self, file: FileIndex, names: &dyn Names) -> Option<Arc<str>> {
        let number = self.files.binary_search_by_key(&file, |known| known.0).ok()?;
        let (_, path) = self.files.get(number)?;
        path.get_or_init(|| names.path(file)).clone()
    }
}

/// Gives calls of the same function one entry for it.
fn with_callees(tree: Vec<TreeCall>) -> (Vec<Call>, Vec<Callee>) {
    let mut calls = Vec::with_capacity(tree.len());
    let mut callees: Vec<Callee> = Vec::new();
    let mut known: FxHashMap<(Vec<u8>, Option<*const Signature>, bool), u32> = FxHashMap::default();
    for call in tree {
        let signature = call.signature.as_ref().map(Arc::as_ptr);
        let key = (call.name, signature, call.readable.is_some());
        let callee = match known.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = u32::try_from(callees.len()).unwrap_or(u32::MAX);
                callees.push(Callee {
                    name: entry.key().0.clone().into(),
                    readable: call.readable,
                    signature: call.signature,
                    info: OnceLock::new(),
                });
                *entry.insert(number)
            }
        };
        calls.push(Call {
            callee,
            around: call.around.and_then(NonZeroU32::new),
            call_file: call.call_file,
            call_line: call.call_line,
        });
    }
    callees.shrink_to_fit();
    (calls, callees)
}

/// Addresses of a call.
struct CallRange {
    start: u64,
    end: u64,
    call: u32,
}

/// Adds the calls of inline nodes, and those in them, in the order of the tree.
fn add_calls(nodes: Vec<InlineNode>, around: u32, calls: &mut Vec<TreeCall>, ranges: &mut Vec<CallRange>) {
    let depth = calls.get(around as usize).map_or(0, |call| call.depth) + 1;
    if depth as usize > MAX_DEPTH {
        return;
    }
    for node in nodes {
        let Ok(number) = u32::try_from(calls.len()) else {
            return;
        };
        ranges.extend(node.ranges.iter().map(|range| CallRange {
            start: range.start,
            end: range.end,
            call: number,
        }));
        calls.push(TreeCall {
            name: node.name,
            readable: None,
            signature: None,
            around: Some(around),
            call_file: node.call_file,
            call_line: node.call_line,
            depth,
        });
        add_calls(node.children, number, calls, ranges);
    }
}

/// Returns the innermost call from each address on, in address order.
fn innermost_calls(start: u64, end: u64, mut ranges: Vec<CallRange>) -> Vec<(u64, u32)> {
    // An inner call that starts where an outer one does has a greater number.
    ranges.sort_by_key(|range| (range.start, range.call));
    let mut found: Vec<(u64, u32)> = Vec::new();
    let mut set = |at: u64, call: u32| match found.last_mut() {
        Some(last) if last.0 == at => last.1 = call,
        Some(last) if last.1 == call => {}
        _ => found.push((at, call)),
    };
    set(start, 0);
    let mut open: Vec<(u64, u32)> = vec![(end, 0)];
    for range in ranges {
        while let Some((until, _)) = open.pop_if(|(until, _)| *until <= range.start && *until < end) {
            let call = open.last().map_or(0, |(_, call)| *call);
            set(until, call);
        }
        open.push((range.end, range.call));
        set(range.start, range.call);
    }
    while let Some((until, _)) = open.pop() {
        if let Some((_, call)) = open.last().filter(|_| until < end) {
            set(until, *call);
        }
    }
    found
}

/// Divides the addresses by call and line.
fn pieces(start: u64, calls: &[(u64, u32)], lines: &[gsym::LineEntry]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(calls.len() + lines.len());
    let (mut calls, mut lines) = (calls.iter().peekable(), lines.iter().peekable());
    let (mut call, mut file, mut line) = (0, FileIndex::ZERO, 0);
    let next = |calls: Option<&&(u64, u32)>, lines: Option<&&gsym::LineEntry>| {
        let call = calls.map(|call| call.0);
        let line = lines.map(|line| line.address);
        call.into_iter().chain(line).min()
    };
    while let Some(at) = next(calls.peek(), lines.peek()) {
        while let Some(found) = calls.next_if(|call| call.0 <= at) {
            call = found.1;
        }
        while let Some(found) = lines.next_if(|line| line.address <= at) {
            (file, line) = (found.file, found.line);
        }
        let Ok(offset) = u32::try_from(at.saturating_sub(start)) else {
            break;
        };
        pieces.push(Piece {
            offset,
            call,
            file,
            line,
        });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(u64, u64, u32)]) -> Vec<CallRange> {
        let range = |&(start, end, call)| CallRange { start, end, call };
        ranges.iter().map(range).collect()
    }

    #[test]
    fn innermost_call_wins_and_outer_ones_resume() {
        let found = innermost_calls(
            0,
            100,
            ranges(&[(10, 40, 1), (10, 20, 2), (25, 30, 3), (50, 100, 4), (90, 100, 5)]),
        );
        let expected = [
            (0, 0),
            (10, 2),
            (20, 1),
            (25, 3),
            (30, 1),
            (40, 0),
            (50, 4),
            (90, 5),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn calls_that_do_not_nest_end_the_search() {
        let found = innermost_calls(0, 100, ranges(&[(10, 400, 1), (20, 30, 2), (25, 60, 3)]));
        assert_eq!(found.first(), Some(&(0, 0)));
        assert!(found.len() < 10);
    }
}
