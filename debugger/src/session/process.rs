//! A traced process: its code and symbols.

use crate::code::{CodeMap, Lines};
use backtrail_decoder::{Image, Version};
use backtrail_pt::{Avma, Pid};
use backtrail_symbolizer::{Function, Symbolizer};
use iced_x86::{Decoder, DecoderOptions};
use std::sync::Arc;

/// A traced process: its code and symbols.
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// Its symbols.
    pub symbols: Arc<Symbolizer>,
    /// Its code bytes.
    pub image: Arc<Image>,
    code: CodeMap,
}

impl Process {
    /// Returns a process with these symbols and this code.
    pub(super) fn new(pid: Pid, symbols: Symbolizer, image: Arc<Image>) -> Self {
        let symbols = Arc::new(symbols);
        Self {
            pid,
            code: CodeMap::new(Arc::clone(&symbols), Arc::clone(&image)),
            symbols,
            image,
        }
    }

    /// Copies code bytes from `at`, as they were in a version, and says how many there are.
    pub fn read(&self, version: Version, at: Avma, out: &mut [u8]) -> usize {
        self.image.read_version(version, at, out)
    }

    /// Decodes the instruction of `len` bytes at an address, in a version of the code.
    pub(crate) fn decoded_at(&self, version: Version, pc: Avma, len: u8) -> Option<iced_x86::Instruction> {
        let mut code = [0; 15];
        let code = code.get_mut(..usize::from(len))?;
        if self.read(version, pc, code) < code.len() {
            return None;
        }
        let instruction = Decoder::with_ip(64, code, pc.0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Returns the line properties of the code, for stepping.
    #[must_use]
    pub fn lines(&self) -> &dyn Lines {
        &self.code
    }

    /// Returns the address of a breakpoint on a function: see [`CodeMap::after_prologue`].
    #[must_use]
    pub fn after_prologue(&self, function: &Function<Avma>) -> Avma {
        self.code.after_prologue(function)
    }

    /// "the 3 modules with symbols", for errors.
    #[must_use]
    pub fn describe_modules(&self) -> String {
        let mut files: Vec<_> = self
            .symbols
            .modules()
            .iter()
            .filter(|module| module.file.is_some())
            .map(|module| &module.name)
            .collect();
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
