//! A binary with its instructions, functions and lines.

use backtrail_profile::fdo::pseudo_probe::{ProbeSections, PseudoProbes, guid};
use backtrail_profile::fdo::{Binary, CodeRange, LinkedFunction, SourceFrame, Transfer};
use backtrail_profile::file_hash_id;
use backtrail_pt::instruction::{Mode, decode};
use backtrail_pt::{Avma, BuildId, Cofi, FileOffset, Svma};
use backtrail_symbolizer::{DebugSearch, Error, Function, FunctionKind, SymbolFile};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The binary that a build with feedback replaces.
///
/// Functions are disassembled when they are first asked for, each from its start.
pub struct FdoBinary {
    symbols: SymbolFile,
    /// The id made of the contents of a file without a build id.
    file_hash: Option<BuildId>,
    name: String,
    parts: RefCell<BTreeMap<Svma, Rc<FunctionPart>>>,
    probes: Option<PseudoProbes>,
    linked_names: OnceCell<BTreeMap<Svma, Arc<str>>>,
}

/// A contiguous part of a function, disassembled.
struct FunctionPart {
    range: Range<Svma>,
    instructions: Vec<PartInstruction>,
    /// Whether it is a stub of the PLT, which linkers make.
    is_stub: bool,
}

/// An instruction of a part.
#[derive(Clone, Copy)]
struct PartInstruction {
    /// The distance from the start of the part.
    offset: u32,
    len: u8,
    transfer: Transfer,
}

impl PartInstruction {
    /// Returns whether the next instruction in memory never follows it.
    fn is_barrier(self) -> bool {
        matches!(self.transfer, Transfer::Jump(_) | Transfer::Return)
    }
}

/// The most bytes of one part of a function that are disassembled.
const MAX_PART: u64 = 16 << 20;
/// The most instructions of straight code that are checked.
const MAX_STRAIGHT: usize = 1 << 20;
/// The most parts of functions without instructions that are skipped.
const MAX_EMPTY_PARTS: usize = 64;

impl FdoBinary {
    /// Opens a binary with its debug information.
    ///
    /// # Errors
    ///
    /// Those of [`SymbolFile::open`].
    pub fn open(path: &Path, search: &DebugSearch) -> Result<Self, Error> {
        let name = path.file_name().unwrap_or_default();
        let symbols = SymbolFile::open(path, search)?;
        let hashed = || File::open(path).and_then(|mut file| file_hash_id(&mut file));
        Ok(Self {
            file_hash: symbols.build_id().map_or_else(|| hashed().ok(), |_| None),
            symbols,
            name: name.to_string_lossy().into_owned(),
            parts: RefCell::default(),
            probes: None,
            linked_names: OnceCell::new(),
        })
    }

    /// Reads the pseudo-probes, if the compiler added any. From then on, sample profiles are by
    /// probes.
    ///
    /// # Errors
    ///
    /// Those of [`PseudoProbes::read`].
    pub fn read_probes(&mut self) -> backtrail_profile::Result<()> {
        let sections = ProbeSections {
            descriptions: self.symbols.section(".pseudo_probe_desc"),
            probes: self.symbols.section(".pseudo_probe"),
        };
        if sections.descriptions.is_empty() || sections.probes.is_empty() {
            return Ok(());
        }
        let symbols = self.symbols.code_symbols();
        let starts: HashMap<u64, Svma> = symbols
            .iter()
            .map(|symbol| (guid(&symbol.linkage_name), symbol.address))
            .collect();
        self.probes = Some(PseudoProbes::read(sections, &|guid| starts.get(&guid).copied())?);
        Ok(())
    }

    /// Returns the name of the file, without its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the `NT_GNU_BUILD_ID` note.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        self.symbols.build_id()
    }

    /// Returns whether the build id of a profile's module is that of the binary, or the id made of
    /// its contents.
    #[must_use]
    pub fn is_build(&self, build_id: &BuildId) -> bool {
        self.build_id().or_else(|| self.file_hash.clone()).as_ref() == Some(build_id)
    }

    /// Returns why lines are missing, or `None` if none are known to be missing.
    #[must_use]
    pub fn debug_gap(&self) -> Option<String> {
        self.symbols.debug_gap()
    }

    /// Returns the address of a byte of the file, if it is code.
    #[must_use]
    pub fn code_at(&self, offset: FileOffset) -> Option<Svma> {
        self.symbols.address_of(offset).filter(|at| self.is_code(*at))
    }

    /// Returns whether there is code at an address.
    #[must_use]
    pub fn is_code(&self, at: Svma) -> bool {
        self.symbols.contains_code(at)
    }

    /// Returns the names of symbols by their addresses, as BOLT makes them: local ones are
    /// numbered in the order of their addresses.
    fn linked_names(&self) -> &BTreeMap<Svma, Arc<str>> {
        self.linked_names.get_or_init(|| {
            let mut numbers: HashMap<Arc<str>, u32> = HashMap::new();
            let mut names = BTreeMap::new();
            for symbol in self.symbols.code_symbols() {
                let name: Arc<str> = match symbol.is_local {
                    true => {
                        let number = numbers.entry(Arc::clone(&symbol.linkage_name)).or_default();
                        *number += 1;
                        format!("{}/{number}", symbol.linkage_name).into()
                    }
                    false => symbol.linkage_name,
                };
                names.entry(symbol.address).or_insert(name);
            }
            names
        })
    }

    fn part_at(&self, at: Svma) -> Option<Rc<FunctionPart>> {
        let known = self
            .parts
            .borrow()
            .range(..=at)
            .next_back()
            .map(|(_, part)| part.clone());
        if let Some(part) = known.filter(|part| part.range.contains(&at)) {
            return Some(part);
        }
        let function = self.symbols.function_at(at)?;
        let range = self.part_of(&function, at)?;
        let part = Rc::new(self.disassemble(range, function.kind == FunctionKind::Plt));
        self.parts.borrow_mut().insert(part.range.start, Rc::clone(&part));
        Some(part)
    }

    /// Returns the part of a function that contains an address.
    fn part_of(&self, function: &Function, at: Svma) -> Option<Range<Svma>> {
        if function.range.contains(&at) {
            return Some(function.range.clone());
        }
        let mut parts = self.symbols.parts_of(function).into_iter();
        parts.find(|part| part.contains(&at))
    }

    fn disassemble(&self, range: Range<Svma>, is_stub: bool) -> FunctionPart {
        let size = range.end.0.saturating_sub(range.start.0).min(MAX_PART);
        let mut code = vec![0; usize::try_from(size).unwrap_or(0)];
        let read = self.symbols.read_constant(range.start, &mut code);
        code.truncate(read);
        let mut instructions = Vec::new();
        let mut rest = &code[..];
        while !rest.is_empty() {
            let offset = code.len() - rest.len();
            let at = Avma(range.start.0.wrapping_add(offset as u64));
            let len = match decode(rest, at, Mode::Bits64) {
                Ok(instruction) => {
                    instructions.push(PartInstruction {
                        offset: offset as u32,
                        len: instruction.len,
                        transfer: transfer_of(instruction.cofi),
                    });
                    usize::from(instruction.len)
                }
                // Data among code.
                Err(_) => 1,
            };
            rest = rest.get(len..).unwrap_or_default();
        }
        FunctionPart {
            range,
            instructions,
            is_stub,
        }
    }

    /// Returns the first instruction at or after an address, in the part that contains it or in the
    /// next one.
    fn instruction_at_or_after(&self, at: Svma) -> Option<(Svma, PartInstruction)> {
        let mut at = at;
        for _ in 0..MAX_EMPTY_PARTS {
            let part = self.part_at(at)?;
            let offset = at.0.checked_sub(part.range.start.0)?;
            let first = part
                .instructions
                .partition_point(|here| u64::from(here.offset) < offset);
            if let Some(found) = part.instructions.get(first) {
                return Some((part.range.start + u64::from(found.offset), *found));
            }
            at = part.range.end;
        }
        None
    }
}

impl Binary for FdoBinary {
    fn instruction(&self, at: Svma) -> Option<(Svma, u8)> {
        let (start, instruction) = self.instruction_at_or_after(at)?;
        Some((start, instruction.len))
    }

    fn is_interrupted(&self, range: CodeRange) -> bool {
        let mut at = range.first;
        for _ in 0..MAX_STRAIGHT {
            let Some((start, instruction)) = self.instruction_at_or_after(at) else {
                return false;
            };
            if start >= range.last {
                return false;
            }
            if instruction.is_barrier() {
                return true;
            }
            at = start + u64::from(instruction.len);
        }
        true
    }

    fn source_frames(&self, at: Svma) -> Vec<SourceFrame> {
        let frames = self.symbols.sample_frames_at(at).into_iter().rev();
        let frames = frames.map(|frame| SourceFrame {
            function: frame.linkage_name,
            line: frame.line,
            declared_line: frame.declared_line,
            discriminator: frame.discriminator,
        });
        frames.collect()
    }

    fn function_ranges(&self, at: Svma) -> Vec<Range<Svma>> {
        match self.symbols.function_at(at) {
            Some(function) => self.symbols.parts_of(&function),
            None => Vec::new(),
        }
    }

    fn entry(&self, at: Svma) -> Option<Arc<str>> {
        let function = self.symbols.function_at(at);
        function.filter(|function| function.entry == at)?;
        // A stub of the PLT has no frames.
        let frames = self.symbols.sample_frames_at(at);
        frames.last().map(|frame| frame.linkage_name.clone())
    }

    fn transfer(&self, at: Svma) -> Option<Transfer> {
        let part = self.part_at(at).filter(|part| !part.is_stub)?;
        let offset = at.0.checked_sub(part.range.start.0)?;
        let instructions = &part.instructions;
        let found = instructions.binary_search_by_key(&offset, |here| u64::from(here.offset));
        let instruction = instructions.get(found.ok()?)?;
        Some(instruction.transfer)
    }

    fn instruction_before(&self, at: Svma) -> Option<Svma> {
        let last = Svma(at.0.checked_sub(1)?);
        let part = self.part_at(last)?;
        let offset = last.0.checked_sub(part.range.start.0)?;
        let after = part
            .instructions
            .partition_point(|here| u64::from(here.offset) <= offset);
        let found = part.instructions.get(after.checked_sub(1)?)?;
        Some(part.range.start + u64::from(found.offset))
    }

    fn probes(&self) -> Option<&PseudoProbes> {
        self.probes.as_ref()
    }

    fn linked_function(&self, at: Svma) -> Option<LinkedFunction> {
        let part = self.part_at(at)?;
        let range = part.range.clone();
        let name = match part.is_stub {
            true => {
                let stub = self.symbols.function_at(at)?;
                let target = stub
                    .linkage_name
                    .strip_suffix("@plt")
                    .unwrap_or(&stub.linkage_name);
                format!("{target}@PLT").into()
            }
            false => Arc::clone(self.linked_names().get(&range.start)?),
        };
        Some(LinkedFunction { name, range })
    }
}

fn transfer_of(cofi: Cofi) -> Transfer {
    match cofi {
        Cofi::Call { .. } | Cofi::IndirectCall => Transfer::Call,
        Cofi::Return => Transfer::Return,
        Cofi::Jump { target } => Transfer::Jump(Some(Svma(target.0))),
        Cofi::IndirectJump => Transfer::Jump(None),
        Cofi::Conditional { target } => Transfer::Conditional(Svma(target.0)),
        _ => Transfer::None,
    }
}
