//! Memory that nothing writes while the program runs.

use crate::session::{Process, Session};
use crate::unwind::Memory;
use backtrail_bundle::core::Core;
use backtrail_pt::Avma;

/// Read-only memory of a process: what its files say, where the core, if there is one, does not say
/// otherwise.
pub(super) struct Constants<'a> {
    process: &'a Process,
    core: Option<&'a Core>,
}

impl<'a> Constants<'a> {
    pub fn new(session: &'a Session, process: &'a Process) -> Self {
        Self {
            process,
            core: session.core(),
        }
    }

    /// Fills `out` with what is at `at`, and says whose it is; `None`: not all of it is known.
    pub fn read(&self, at: Avma, out: &mut [u8]) -> Option<&'a str> {
        let module = self.process.symbols.module_at(at)?;
        let file = module.file.as_ref()?;
        if file.read_constant(at.to_svma(module.bias), out) < out.len() {
            return None;
        }
        let unchanged = self.core.is_none_or(|core| {
            let memory = Memory::new(core, &self.process.image);
            let mut saved = vec![0; out.len()];
            !memory.is_writable(at) && (memory.read(at, &mut saved).is_none() || saved == *out)
        });
        unchanged.then_some(&*module.name)
    }
}
