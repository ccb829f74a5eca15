//! A traced process: its code and symbols.

use crate::code::{CodeMap, Lines};
use crate::module_history::{ModuleEpoch, ModuleHistory};
use backtrail_decoder::{Image, Version};
use backtrail_pt::{Avma, Pid};
use backtrail_symbolizer::{Function, Symbolizer};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::collections::HashSet;
use std::sync::Arc;

/// A traced process: its code and symbols.
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// The symbols that hold in all versions of the code. Addresses at which modules were replaced
    /// have none here, but in [`Self::symbols_at`].
    pub symbols: Arc<Symbolizer>,
    /// Its code bytes.
    pub image: Arc<Image>,
    /// Its modules over time.
    pub modules: Arc<ModuleHistory>,
    /// Its instructions, as the trace or its modules say.
    pub mode: CodeMode,
    code: CodeMap,
}

/// The operand size of a process's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CodeMode {
    /// 64-bit code.
    #[default]
    Bits64,
    /// 32-bit code. Flow and disassembly are shown; registers, values and unwinding are for 64-bit
    /// code.
    Bits32,
    /// 16-bit code, as 32-bit code.
    Bits16,
}

impl CodeMode {
    /// Returns the bitness for a disassembler.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Bits64 => 64,
            Self::Bits32 => 32,
            Self::Bits16 => 16,
        }
    }

    /// Decodes the instruction of `len` bytes at an address, in a version of the code. Only 64-bit
    /// code is decoded.
    pub(crate) fn decoded_at(
        self,
        image: &Image,
        version: Version,
        pc: Avma,
        len: u8,
    ) -> Option<Instruction> {
        if self != Self::Bits64 {
            return None;
        }
        let mut code = [0; 15];
        let code = code.get_mut(..usize::from(len))?;
        if image.read_version(version, pc, code) < code.len() {
            return None;
        }
        let instruction = Decoder::with_ip(64, code, pc.0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

impl Process {
    /// Returns a process with these modules and this code.
    pub(super) fn new(pid: Pid, modules: ModuleHistory, image: Arc<Image>, mode: CodeMode) -> Self {
        let modules = Arc::new(modules);
        Self {
            pid,
            symbols: Arc::clone(modules.stable()),
            code: CodeMap::new(Arc::clone(&modules), Arc::clone(&image)),
            image,
            modules,
            mode,
        }
    }

    /// Returns the periods in which the same modules were mapped, in order; at least one.
    #[must_use]
    pub fn epochs(&self) -> &[ModuleEpoch] {
        self.modules.epochs()
    }

    /// Returns the number of the period with a version of the code.
    #[must_use]
    pub fn epoch_at(&self, version: Version) -> usize {
        self.modules.epoch_at(version)
    }

    /// Returns the symbols of the modules that were mapped in a version of the code.
    #[must_use]
    pub fn symbols_at(&self, version: Version) -> &Arc<Symbolizer> {
        self.modules.symbols_at(version)
    }

    /// Returns the symbols of the modules that were mapped at the end.
    #[must_use]
    pub fn symbols_at_end(&self) -> &Arc<Symbolizer> {
        self.symbols_at(Version(u32::MAX))
    }

    /// Returns whether the same modules were mapped all the time.
    #[must_use]
    pub fn has_one_epoch(&self) -> bool {
        self.modules.has_one_epoch()
    }

    /// Returns the functions that `find` returns in any period, each once.
    pub fn functions_in_all(&self, find: impl Fn(&Symbolizer) -> Vec<Function<Avma>>) -> Vec<Function<Avma>> {
        let mut found: Vec<Function<Avma>> = Vec::new();
        for epoch in self.epochs() {
            let new = find(&epoch.symbols);
            match found.is_empty() {
                true => found = new,
                false => {
                    let known: HashSet<(Avma, Arc<str>)> = found
                        .iter()
                        .map(|known| (known.entry, Arc::clone(&known.linkage_name)))
                        .collect();
                    let is_new = |function: &Function<Avma>| {
                        !known.contains(&(function.entry, Arc::clone(&function.linkage_name)))
                    };
                    found.extend(new.into_iter().filter(is_new));
                }
            }
        }
        found
    }

    /// Returns the address of a breakpoint on a function in a period: see
    /// [`CodeMap::after_prologue`].
    #[must_use]
    pub fn after_prologue(&self, epoch: &ModuleEpoch, function: &Function<Avma>) -> Avma {
        self.code.after_prologue(epoch, function)
    }

    /// Copies the code bytes of a version from `at`, and returns their number.
    pub fn read(&self, version: Version, at: Avma, out: &mut [u8]) -> usize {
        self.image.read_version(version, at, out)
    }

    /// Decodes the instruction of `len` bytes at an address, in a version of the code. Only 64-bit
    /// code is decoded, because registers and values are known by it.
    pub(crate) fn decoded_at(&self, version: Version, pc: Avma, len: u8) -> Option<Instruction> {
        self.mode.decoded_at(&self.image, version, pc, len)
    }

    /// Returns the line properties of the code, for stepping.
    #[must_use]
    pub fn lines(&self) -> &dyn Lines {
        &self.code
    }

    /// "the 3 modules with symbols", for errors.
    #[must_use]
    pub fn describe_modules(&self) -> String {
        let modules = self.epochs().iter().flat_map(|epoch| epoch.symbols.modules());
        let mut files: Vec<_> = modules
            .filter(|module| module.file.is_some())
            .map(|module| &module.name)
            .collect();
        if !self.has_one_epoch() {
            files.sort_unstable();
        }
        files.dedup();
        match files.len() {
            0 => "this process, which has no symbols".to_owned(),
            1 => format!(
                "the one module with symbols ({})",
                files.first().map_or("", |name| name)
            ),
            count => format!("the {count} modules with symbols"),
        }
    }
}
