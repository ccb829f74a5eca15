//! Compact unwind tables, built from `.eh_frame` once per file.
//!
//! A row is 8 bytes and holds for the code from its file offset up to the next row. Rows cover the
//! rules that compilers write. Code with other rules, and code between functions, has a row that
//! says so.
//!
//! Source: System V ABI AMD64, "DWARF Definition" and "Exception Handling"; Linux Standard Base,
//! "Exception Frames".

use crate::elf_sections::ElfSections;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, Expression, LittleEndian, Operation,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow, X86_64,
};
use object::ReadRef;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The most bytes of `.eh_frame` that are read.
const MAX_EH_FRAME: u64 = 1 << 26;
/// Gaps between functions that are shorter are padding.
const PADDING: u32 = 16;
/// The most rows of a file.
const MAX_ROWS: usize = 1 << 22;

/// The start of the canonical frame (CFA): the value of the stack pointer before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// The stack pointer plus an offset.
    Sp(i64),
    /// The frame pointer plus an offset.
    Bp(i64),
    /// The word at the frame pointer plus an offset, as in functions that align their stack.
    AtBp(i64),
    /// In an entry of a procedure linkage table: the stack pointer plus 8, and 8 more from this
    /// byte of each 16 on.
    Plt(i64),
}

/// Where the frame pointer of the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedBp {
    /// In the register.
    Unchanged,
    /// At the CFA plus an offset.
    AtCfa(i64),
    /// At the frame pointer plus an offset.
    AtBp(i64),
}

/// How the caller of a piece of code is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwindRule {
    /// No rule is known, or it is none that rows cover.
    Unknown,
    /// The code has no caller: it starts the thread.
    Outermost,
    /// The code returns from a signal handler, and the kernel saved the registers of the
    /// interrupted code on the stack.
    Signal,
    /// The return address is below the CFA.
    Frame {
        /// The CFA.
        cfa: Cfa,
        /// The caller's frame pointer.
        bp: SavedBp,
    },
}

/// A rule in 4 bytes, as `struct row` of `bpf/src/sample_event.h` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedRule {
    /// The kind of the CFA in the low half, that of the saved frame pointer in the high half.
    kinds: u8,
    /// The offset of the saved frame pointer, in words.
    bp: i8,
    /// The offset of the CFA, in words. For [`Cfa::Plt`], in bytes.
    cfa: i16,
}

/// A row: a rule, and the file offset of the first code that it holds for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    start: u32,
    rule: PackedRule,
}

const WORD: i64 = 8;

impl PackedRule {
    /// Packs a rule. A rule whose offsets do not fit becomes [`UnwindRule::Unknown`].
    fn new(rule: UnwindRule) -> Self {
        let simple = |kinds| Self { kinds, bp: 0, cfa: 0 };
        let words = |bytes: i64| (bytes % WORD == 0).then_some(bytes / WORD);
        let frame = |cfa: Cfa, bp: SavedBp| {
            let (cfa_kind, cfa) = match cfa {
                Cfa::Sp(offset) => (3, words(offset)?),
                Cfa::Bp(offset) => (4, words(offset)?),
                Cfa::AtBp(offset) => (5, words(offset)?),
                Cfa::Plt(byte) => (6, byte),
            };
            let (bp_kind, bp) = match bp {
                SavedBp::Unchanged => (0, 0),
                SavedBp::AtCfa(offset) => (1, words(offset)?),
                SavedBp::AtBp(offset) => (2, words(offset)?),
            };
            Some(Self {
                kinds: cfa_kind | bp_kind << 4,
                bp: i8::try_from(bp).ok()?,
                cfa: i16::try_from(cfa).ok()?,
            })
        };
        match rule {
            UnwindRule::Unknown => simple(0),
            UnwindRule::Outermost => simple(1),
            UnwindRule::Signal => simple(2),
            UnwindRule::Frame { cfa, bp } => frame(cfa, bp).unwrap_or(simple(0)),
        }
    }

    fn unpack(self) -> UnwindRule {
        let words = i64::from(self.cfa) * WORD;
        let cfa = match self.kinds & 0xf {
            1 => return UnwindRule::Outermost,
            2 => return UnwindRule::Signal,
            3 => Cfa::Sp(words),
            4 => Cfa::Bp(words),
            5 => Cfa::AtBp(words),
            6 => Cfa::Plt(self.cfa.into()),
            _ => return UnwindRule::Unknown,
        };
        let bp = match self.kinds >> 4 {
            1 => SavedBp::AtCfa(i64::from(self.bp) * WORD),
            2 => SavedBp::AtBp(i64::from(self.bp) * WORD),
            _ => SavedBp::Unchanged,
        };
        UnwindRule::Frame { cfa, bp }
    }
}

/// The rows of a table that is being built, in the order of its functions in `.eh_frame`.
///
/// Large files have millions of rows. So the table is made in their memory.
#[derive(Debug, Default)]
struct RowBuffer {
    rows: Vec<Row>,
    /// The number of rows before the current function.
    function: usize,
}

impl RowBuffer {
    /// The bit in [`PackedRule::kinds`] of a row that only ends a function.
    const END: u8 = 1 << 7;

    /// Begins a function. The end of the last one is not needed if only padding is between.
    fn begin_function(&mut self, start: u32) {
        if let Some(last) = self.rows.last()
            && last.rule.kinds & Self::END != 0
            && (last.start..last.start.saturating_add(PADDING)).contains(&start)
        {
            self.rows.pop();
        }
        self.function = self.rows.len();
    }

    /// Adds a row of the function.
    fn push(&mut self, start: u32, rule: UnwindRule) {
        let rule = PackedRule::new(rule);
        let own = self.rows.get_mut(self.function..);
        match own.and_then(<[Row]>::last_mut) {
            Some(last) if last.start == start => last.rule = rule,
            Some(last) if last.rule == rule => {}
            _ => self.rows.push(Row { start, rule }),
        }
    }

    /// Removes the rule of the function's first row, because the function is malformed.
    fn begin_with_unknown(&mut self, start: u32) {
        let rule = PackedRule::new(UnwindRule::Unknown);
        match self.rows.get_mut(self.function) {
            Some(first) if first.start == start => first.rule = rule,
            _ => self.rows.push(Row { start, rule }),
        }
    }

    /// Ends the function at an offset.
    fn end_function(&mut self, start: u32) {
        let mut rule = PackedRule::new(UnwindRule::Unknown);
        rule.kinds |= Self::END;
        self.rows.push(Row { start, rule });
    }

    fn into_table(mut self) -> UnwindTable {
        // A function ends before the next one begins at the same place.
        let key = |row: &Row| (row.start, row.rule.kinds & Self::END == 0);
        // Linkers order most functions by address.
        if !self.rows.is_sorted_by_key(key) {
            self.rows.sort_unstable_by_key(key);
        }
        let rows = self.rows.as_mut_slice();
        // The table is in front of the rows that are still to be read.
        let (mut kept, mut ends_with_padding) = (0_usize, false);
        for index in 0..rows.len() {
            let Some(&Row { start, mut rule }) = rows.get(index) else {
                break;
            };
            let is_code = rule.kinds & Self::END == 0;
            rule.kinds &= !Self::END;
            let last = rows.get(..kept).and_then(<[Row]>::last);
            if is_code && ends_with_padding && last.is_some_and(|last| start - last.start < PADDING) {
                // Nothing runs between functions.
                kept -= 1;
            }
            ends_with_padding = !is_code;
            match rows.get_mut(..kept).and_then(<[Row]>::last_mut) {
                Some(last) if last.start == start => last.rule = rule,
                Some(last) if last.rule == rule => {}
                _ => {
                    if let Some(row) = rows.get_mut(kept) {
                        *row = Row { start, rule };
                    }
                    kept += 1;
                }
            }
        }
        self.rows.truncate(kept);
        self.rows.shrink_to_fit();
        UnwindTable { rows: self.rows }
    }
}

/// The unwind rules of a file's code.
#[derive(Clone, Debug, Default)]
pub struct UnwindTable {
    rows: Vec<Row>,
}

impl UnwindTable {
    /// Builds the table of an ELF file of x86-64. `None`: it has no `.eh_frame`, or is malformed.
    pub fn of_elf<'d>(file: impl ReadRef<'d>) -> Option<Self> {
        let file = ElfSections::parse(file).filter(ElfSections::is_x86_64)?;
        let data = file.bytes(".eh_frame", MAX_EH_FRAME)?;
        let mut bases = BaseAddresses::default().set_eh_frame(file.address(".eh_frame")?);
        if let Some(text) = file.address(".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = file.address(".got") {
            bases = bases.set_got(got);
        }
        let segments = file.segments();
        let offset_of = |address: u64| {
            let segment = segments.iter().find(|segment| {
                (segment.address..segment.address.saturating_add(segment.size)).contains(&address)
            })?;
            u32::try_from((address - segment.address).checked_add(segment.offset)?).ok()
        };
        let mut section = EhFrame::new(data, LittleEndian);
        section.set_address_size(8);
        Some(Self::build(&section, &bases, offset_of))
    }

    /// Builds the table of a section. `offset_of` returns the file offset of an address.
    fn build(
        section: &EhFrame<Slice<'_>>,
        bases: &BaseAddresses,
        offset_of: impl Fn(u64) -> Option<u32>,
    ) -> Self {
        let mut buffer = RowBuffer::default();
        let mut context = UnwindContext::new();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            let first = fde.initial_address();
            let (Some(start), Some(end)) = (
                offset_of(first),
                offset_of(first.saturating_add(fde.len().saturating_sub(1))),
            ) else {
                continue;
            };
            if fde.len() == 0 || buffer.rows.len() > MAX_ROWS {
                continue;
            }
            buffer.begin_function(start);
            let is_signal = fde.is_signal_trampoline();
            let Ok(mut table) = fde.rows(section, bases, &mut context) else {
                buffer.begin_with_unknown(start);
                buffer.end_function(end.saturating_add(1));
                continue;
            };
            loop {
                let at = match table.next_row() {
                    Ok(Some(row)) => {
                        let rule = match is_signal {
                            true => UnwindRule::Signal,
                            false => rule(row, section),
                        };
                        offset_of(row.start_address()).map(|at| (at, rule))
                    }
                    Ok(None) => break,
                    Err(_) => {
                        buffer.begin_with_unknown(start);
                        break;
                    }
                };
                if let Some((at, rule)) = at {
                    buffer.push(at, rule);
                }
            }
            buffer.end_function(end.saturating_add(1));
        }
        buffer.into_table()
    }

    /// Returns the rule for the code at a file offset.
    #[must_use]
    pub fn rule(&self, offset: u64) -> UnwindRule {
        let Ok(offset) = u32::try_from(offset) else {
            return UnwindRule::Unknown;
        };
        let after = self.rows.partition_point(|row| row.start <= offset);
        let row = after.checked_sub(1).and_then(|index| self.rows.get(index));
        row.map_or(UnwindRule::Unknown, |row| row.rule.unpack())
    }

    /// Returns the rows in ascending order.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the size in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
    }
}

/// Returns the rule of a row of DWARF's table.
fn rule(row: &UnwindTableRow<usize>, section: &EhFrame<Slice<'_>>) -> UnwindRule {
    let operations = |expression: &gimli::UnwindExpression<usize>| {
        expression
            .get(section)
            .ok()
            .and_then(|expression| operations(expression))
    };
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) | None => return UnwindRule::Outermost,
        _ => return UnwindRule::Unknown,
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match *register {
            X86_64::RSP => Some(Cfa::Sp(*offset)),
            X86_64::RBP => Some(Cfa::Bp(*offset)),
            _ => None,
        },
        CfaRule::Expression(expression) => operations(expression).and_then(|operations| cfa_of(&operations)),
    };
    let bp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(SavedBp::Unchanged),
        Some(RegisterRule::Offset(offset)) => Some(SavedBp::AtCfa(offset)),
        Some(RegisterRule::Expression(expression)) => match operations(&expression).as_deref() {
            Some(
                [
                    Operation::RegisterOffset {
                        register: X86_64::RBP,
                        offset,
                        ..
                    },
                ],
            ) => Some(SavedBp::AtBp(*offset)),
            _ => None,
        },
        _ => None,
    };
    match (cfa, bp) {
        (Some(cfa), Some(bp)) => UnwindRule::Frame { cfa, bp },
        _ => UnwindRule::Unknown,
    }
}

/// Returns the operations of a short expression.
fn operations<'a>(expression: Expression<Slice<'a>>) -> Option<Vec<Operation<Slice<'a>>>> {
    const ENCODING: gimli::Encoding = gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    };
    /// The expressions that rows cover have fewer operations.
    const MAX: usize = 10;
    let mut operations = Vec::new();
    let mut iter = expression.operations(ENCODING);
    while let Some(operation) = iter.next().ok()? {
        operations.push(operation);
        if operations.len() > MAX {
            return None;
        }
    }
    Some(operations)
}

/// Returns the CFA of the expressions that compilers and linkers write.
fn cfa_of(operations: &[Operation<Slice<'_>>]) -> Option<Cfa> {
    use Operation::{And, Deref, Ge, Plus, RegisterOffset, Shl, UnsignedConstant};
    match operations {
        [
            RegisterOffset {
                register: X86_64::RBP,
                offset,
                ..
            },
            Deref { .. },
        ] => Some(Cfa::AtBp(*offset)),
        [
            RegisterOffset {
                register: X86_64::RSP,
                offset: 8,
                ..
            },
            RegisterOffset {
                register: X86_64::RA,
                offset: 0,
                ..
            },
            UnsignedConstant { value: 15 },
            And,
            UnsignedConstant { value: byte @ 0..16 },
            Ge,
            UnsignedConstant { value: 3 },
            Shl,
            Plus,
        ] => Some(Cfa::Plt(*byte as i64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_round_trip() {
        let frame = |cfa, bp| UnwindRule::Frame { cfa, bp };
        for rule in [
            UnwindRule::Unknown,
            UnwindRule::Outermost,
            UnwindRule::Signal,
            frame(Cfa::Sp(8), SavedBp::Unchanged),
            frame(Cfa::Sp(0x10000), SavedBp::AtCfa(-16)),
            frame(Cfa::Bp(16), SavedBp::AtCfa(-16)),
            frame(Cfa::AtBp(-8), SavedBp::AtBp(0)),
            frame(Cfa::Plt(11), SavedBp::Unchanged),
        ] {
            assert_eq!(PackedRule::new(rule).unpack(), rule);
        }
        // Not a multiple of a word, and too far away.
        for cfa in [Cfa::Sp(12), Cfa::Sp(1 << 20), Cfa::Bp(i64::MAX)] {
            let packed = PackedRule::new(frame(cfa, SavedBp::Unchanged));
            assert_eq!(packed.unpack(), UnwindRule::Unknown);
        }
        assert_eq!(size_of::<Row>(), 8);
    }

    #[test]
    fn own_table_covers_this_function() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let table = UnwindTable::of_elf(&*bytes).unwrap();
        let known = table
            .rows
            .iter()
            .filter(|row| row.rule.unpack() != UnwindRule::Unknown);
        assert!(known.count() > 1000, "{}", table.len());
        assert!(table.rows.is_sorted_by_key(|row| row.start));
        assert_eq!(table.rule(u64::MAX), UnwindRule::Unknown);
        assert_eq!(table.rule(0), UnwindRule::Unknown);
    }

    /// The range of a function, and the offsets of its CFA.
    type Function<'a> = (u32, u32, &'a [(u32, i64)]);

    /// Returns the rows of functions.
    fn rows_of(functions: &[Function<'_>]) -> Vec<(u32, UnwindRule)> {
        let mut buffer = RowBuffer::default();
        for (start, end, rows) in functions {
            buffer.begin_function(*start);
            for (at, cfa) in *rows {
                buffer.push(*at, sp(*cfa));
            }
            buffer.end_function(*end);
        }
        let table = buffer.into_table();
        let rows = table.rows.iter();
        rows.map(|row| (row.start, row.rule.unpack())).collect()
    }

    fn sp(cfa: i64) -> UnwindRule {
        UnwindRule::Frame {
            cfa: Cfa::Sp(cfa),
            bp: SavedBp::Unchanged,
        }
    }

    #[test]
    fn functions_make_one_table_in_any_order() {
        let functions: [Function<'_>; 4] = [
            (0x100, 0x120, &[(0x100, 8), (0x104, 16), (0x118, 8)]),
            // After padding, with the rule of the code before it.
            (0x128, 0x140, &[(0x128, 8), (0x130, 24), (0x130, 32)]),
            // At once after it.
            (0x140, 0x150, &[(0x140, 8)]),
            // After a gap without code.
            (0x160, 0x170, &[(0x160, 8), (0x168, 8)]),
        ];
        let wanted = [
            (0x100, sp(8)),
            (0x104, sp(16)),
            (0x118, sp(8)),
            (0x130, sp(32)),
            (0x140, sp(8)),
            (0x150, UnwindRule::Unknown),
            (0x160, sp(8)),
            (0x170, UnwindRule::Unknown),
        ];
        assert_eq!(rows_of(&functions), wanted);
        for order in [[3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2], [0, 2, 1, 3]] {
            let functions = order.map(|index| functions[index]);
            assert_eq!(rows_of(&functions), wanted, "{order:?}");
        }
        assert_eq!(rows_of(&[]), []);
    }

    #[test]
    fn files_without_tables_have_none() {
        assert!(UnwindTable::of_elf(&b"\x7fELF\x02\x01\x01"[..]).is_none());
        assert!(UnwindTable::of_elf(&b""[..]).is_none());
    }
}
