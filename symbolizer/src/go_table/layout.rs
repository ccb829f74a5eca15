//! The code of one function: its source lines and inlined copies by address.

use super::bytes::string_at;
use super::header::Header;
use super::inline_tree::{Caller, InlinedCall};
use super::pc_values::PcValues;
use super::record::Record;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The deepest inlining that is read. No compiler reaches it.
const MAX_INLINED: usize = 256;
/// The most parts of inlined copies for each byte of code. Genuine functions have less than one.
const PARTS_PER_BYTE: usize = 8;

/// A position in source code: the offset of a path, and a line from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub file: u32,
    pub line: u32,
}

/// Code with the same line and the same inlined copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The start, as an offset from the function's entry. It ends where the next one starts.
    pub start: u32,
    /// `None`: the code has no line.
    pub place: Option<Place>,
    /// The index of the innermost inlined copy.
    pub copy: Option<u32>,
}

/// An inlined copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// The index of the copy around this one.
    pub around: Option<u32>,
    /// The offset of the name.
    pub name: u32,
    /// Where the function is declared, if the table states it.
    pub declared: Option<Place>,
    /// Where the call is.
    pub call: Option<Place>,
    /// The code, as sorted and disjoint offsets from the function's entry.
    pub parts: Vec<Range<u32>>,
    depth: usize,
}

/// The code of a function.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The number of bytes of code, without padding.
    pub size: u32,
    /// Segments in address order. Empty: the function has no lines.
    pub segments: Vec<Segment>,
    /// Inlined copies. A copy follows the one around it.
    pub copies: Vec<Copy>,
    /// Where the function is declared, if the table states it.
    pub declared: Option<Place>,
}

impl Layout {
    /// Reads the code of a function of at most `limit` bytes, given the bytes from its first
    /// inlined call on. A function with damaged tables has no lines.
    pub(super) fn read(header: &Header<'_>, record: &Record, calls: Option<&[u8]>, limit: u32) -> Self {
        let Some((size, raw)) = RawSegment::read_all(header, record, limit) else {
            return Self {
                size: limit,
                ..Self::default()
            };
        };
        let mut builder = Builder {
            header,
            record,
            calls,
            raw: &raw,
            known: FxHashMap::default(),
            layout: Self {
                size,
                ..Self::default()
            },
            parts_left: (size as usize).saturating_mul(PARTS_PER_BYTE),
        };
        for (number, segment) in raw.iter().enumerate() {
            let end = raw.get(number + 1).map_or(size, |next| next.start);
            builder.add(segment, end);
        }
        builder.layout
    }

    /// Returns the number of the segment that contains an offset.
    pub fn segment_at(&self, offset: u32) -> Option<usize> {
        let next = self.segments.partition_point(|segment| segment.start <= offset);
        next.checked_sub(1).filter(|_| offset < self.size)
    }

    /// Returns the inlined copies at an offset, innermost first.
    pub fn copies_at(&self, offset: u32) -> impl Iterator<Item = &Copy> {
        let segment = self
            .segment_at(offset)
            .and_then(|number| self.segments.get(number));
        let copy = |index: u32| self.copies.get(index as usize);
        let innermost = segment.and_then(|segment| copy(segment.copy?));
        std::iter::successors(innermost, move |inner| copy(inner.around?)).take(MAX_INLINED)
    }

    /// Returns the code with the same line around a segment.
    pub fn row(&self, number: usize) -> Option<(Range<u32>, Place)> {
        let place = self.segments.get(number)?.place?;
        let (before, after) = self.segments.split_at_checked(number)?;
        let is_same = |segment: &&Segment| segment.place == Some(place);
        let first = before.iter().rev().take_while(is_same).last();
        let start = first.or(after.first())?.start;
        let next = after.iter().find(|segment| !is_same(segment));
        Some((start..next.map_or(self.size, |next| next.start), place))
    }

    /// Returns the lines in address order: each begins where the last one ends.
    pub fn rows(&self) -> impl Iterator<Item = (Range<u32>, Option<Place>)> {
        let starts = self.segments.iter().enumerate().filter(|(number, segment)| {
            let before = number.checked_sub(1).and_then(|before| self.segments.get(before));
            before.is_none_or(|before| before.place != segment.place)
        });
        let mut starts = starts.map(|(_, segment)| segment).peekable();
        std::iter::from_fn(move || {
            let segment = starts.next()?;
            let end = starts.peek().map_or(self.size, |next| next.start);
            Some((segment.start..end, segment.place))
        })
    }

    /// Returns a measure of the memory that the code takes.
    pub fn weight(&self) -> usize {
        let parts: usize = self.copies.iter().map(|copy| copy.parts.len()).sum();
        1 + self.segments.len() + 4 * self.copies.len() + parts
    }
}

/// Code with the same values of all tables.
struct RawSegment {
    start: u32,
    place: Option<Place>,
    /// The index of an inlined call, or negative.
    call: i32,
}

impl RawSegment {
    /// Merges the tables of a function. Returns the size of the function, and the segments. Returns
    /// `None` if there are no lines, or if a table is damaged.
    fn read_all(header: &Header<'_>, record: &Record, limit: u32) -> Option<(u32, Vec<Self>)> {
        let values = |offset: u32| {
            let table = header.values.get(offset as usize..).filter(|_| offset != 0);
            PcValues::new(table.unwrap_or_default())
        };
        if record.line_values == 0 {
            return None;
        }
        let (mut files, mut lines, mut calls) = (
            values(record.file_values),
            values(record.line_values),
            values(record.inlined_values),
        );
        let mut segments = Vec::new();
        let mut at = 0;
        let (mut path, mut path_number) = (None, -1);
        while at < limit {
            if at >= lines.end && !lines.advance() {
                break;
            }
            let file = value_at(&mut files, at);
            if file != path_number {
                path = u32::try_from(file)
                    .ok()
                    .and_then(|file| header.path_of(record.unit, file));
                path_number = file;
            }
            let line = u32::try_from(lines.value).ok().filter(|line| *line != 0);
            segments.push(Self {
                start: at,
                place: path.zip(line).map(|(file, line)| Place { file, line }),
                call: value_at(&mut calls, at),
            });
            let others = [files.end, calls.end].into_iter().filter(|end| *end > at);
            at = others.fold(lines.end, u32::min);
        }
        (lines.is_whole && at != 0).then(|| (at.min(limit), segments))
    }

    /// Returns the segment that contains an offset.
    fn find(segments: &[Self], offset: u32) -> Option<&Self> {
        let next = segments.partition_point(|segment| segment.start <= offset);
        segments.get(next.checked_sub(1)?)
    }
}

/// Returns the value at an offset that is not before the last one; -1 after the table.
fn value_at(values: &mut PcValues<'_>, offset: u32) -> i32 {
    while values.end <= offset {
        if !values.advance() {
            return -1;
        }
    }
    values.value
}

/// Builds the layout of a function.
struct Builder<'b, 'd> {
    header: &'b Header<'d>,
    record: &'b Record,
    calls: Option<&'b [u8]>,
    raw: &'b [RawSegment],
    /// The copies by the index of their call. `None`: the call is damaged.
    known: FxHashMap<u32, Option<u32>>,
    layout: Layout,
    parts_left: usize,
}

impl Builder<'_, '_> {
    /// Adds a segment to the layout, and to its inlined copies.
    fn add(&mut self, raw: &RawSegment, end: u32) {
        let copy = u32::try_from(raw.call).ok().and_then(|index| self.copy_of(index));
        let depth = copy
            .and_then(|copy| self.layout.copies.get(copy as usize))
            .map_or(0, |copy| copy.depth);
        let left = self.parts_left.checked_sub(depth);
        self.parts_left = left.unwrap_or(self.parts_left);
        let copy = copy.filter(|_| left.is_some());
        let mut next = copy;
        while let Some(copy) = next.and_then(|index| self.layout.copies.get_mut(index as usize)) {
            match copy.parts.last_mut() {
                Some(last) if last.end == raw.start => last.end = end,
                _ => copy.parts.push(raw.start..end),
            }
            next = copy.around;
        }
        self.declare(copy, raw.place);
        self.layout.segments.push(Segment {
            start: raw.start,
            place: raw.place,
            copy,
        });
    }

    /// Sets the file of a declaration: code of a function itself is in the same file.
    fn declare(&mut self, copy: Option<u32>, place: Option<Place>) {
        let Some(Place { file, .. }) = place else { return };
        let declared = match copy {
            None => {
                let line = self.record.declared_line;
                self.layout.declared.get_or_insert(Place { file, line });
                return;
            }
            Some(copy) => self.layout.copies.get_mut(copy as usize),
        };
        if let Some(declared) = declared.and_then(|copy| copy.declared.as_mut())
            && declared.file == u32::MAX
        {
            declared.file = file;
        }
    }

    /// Returns the copy of an inlined call. Adds it after the copies around it. Returns `None` for
    /// a damaged call, for calls inside one, and for calls that are around each other.
    fn copy_of(&mut self, index: u32) -> Option<u32> {
        let mut chain: Vec<(u32, Option<InlinedCall>)> = Vec::new();
        let mut next = Some(index);
        let mut around = None;
        let mut is_damaged = false;
        while let Some(index) = next {
            if let Some(known) = self.known.get(&index) {
                around = *known;
                is_damaged = known.is_none();
                break;
            }
            let calls = self.calls.filter(|_| chain.len() < MAX_INLINED);
            let call = calls.and_then(|calls| InlinedCall::read(self.header.format, calls, index));
            chain.push((index, call));
            is_damaged = call.is_none();
            next = call.and_then(|call| self.around(&call));
        }
        for (index, call) in chain.into_iter().rev() {
            let call = call.filter(|_| !is_damaged);
            around = call.and_then(|call| self.push(&call, around));
            is_damaged = around.is_none();
            self.known.insert(index, around);
        }
        around
    }

    /// Returns the index of the inlined call around another one.
    fn around(&self, call: &InlinedCall) -> Option<u32> {
        match call.caller {
            Caller::Stated { around, .. } => around,
            Caller::SameAs(offset) => u32::try_from(RawSegment::find(self.raw, offset)?.call).ok(),
        }
    }

    fn push(&mut self, call: &InlinedCall, around: Option<u32>) -> Option<u32> {
        let outer = around.and_then(|around| self.layout.copies.get(around as usize));
        let depth = 1 + outer.map_or(0, |outer| outer.depth);
        let here = u32::try_from(self.layout.copies.len()).ok()?;
        self.parts_left = self.parts_left.checked_sub(1)?;
        if depth > MAX_INLINED || string_at(self.header.names, call.name)?.is_empty() {
            return None;
        }
        let call_place = match call.caller {
            Caller::Stated { file, line, .. } => {
                let file = self.header.path_of(self.record.unit, file);
                file.map(|file| Place { file, line })
            }
            Caller::SameAs(offset) => RawSegment::find(self.raw, offset).and_then(|segment| segment.place),
        };
        let declared = Place {
            file: u32::MAX,
            line: call.declared_line,
        };
        self.layout.copies.push(Copy {
            around,
            name: call.name,
            declared: Some(declared).filter(|declared| declared.line != 0),
            call: call_place,
            parts: Vec::new(),
            depth,
        });
        Some(here)
    }
}
