//! The code of the kernel and of its modules.
//!
//! Source: proc_kallsyms(5), proc_modules(5), `Documentation/ABI/testing/sysfs-kernel-notes`.

mod symbols;

use crate::module_key::ModuleKey;
use crate::modules::{ModuleIdx, ModuleKind, Modules};
use backtrail_profile::{AddressSpaces, MappedModule};
use backtrail_pt::{BuildId, FileOffset};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use symbols::KernelSymbols;

/// The name of the kernel's text in profiles, as perf writes it. Offsets begin at `_text`.
const NAME: &str = "[kernel.kallsyms]";
/// The name of the kernel if its addresses are hidden. Offsets begin at the start of [`HIDDEN`].
const HIDDEN_NAME: &str = "[kernel]";
/// The kernel's text and modules (`Documentation/arch/x86/x86_64/mm.rst`). The kernel moves both in
/// this range when the machine starts.
const HIDDEN: Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_ff00_0000;

/// The functions of the running kernel.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    symbols: KernelSymbols,
    /// The first address of the kernel's text and of each module.
    starts: HashMap<ModuleIdx, u64>,
}

impl Kernel {
    /// Maps the kernel and its modules, as far as this user may know their addresses.
    pub fn map(modules: &mut Modules, spaces: &mut AddressSpaces<ModuleIdx>) -> Self {
        Self::with(KernelSymbols::of_this_machine(), modules, spaces)
    }

    fn with(symbols: KernelSymbols, modules: &mut Modules, spaces: &mut AddressSpaces<ModuleIdx>) -> Self {
        let mut starts = HashMap::new();
        let mut add = |name: &str, build_id: Option<BuildId>, start: u64, size: u64| {
            let key = ModuleKey {
                path: name.into(),
                build_id,
                file: None,
            };
            let module = modules.intern(key, ModuleKind::Kernel, None);
            let offset = FileOffset(0);
            spaces.map(None, start, size, MappedModule { module, offset });
            starts.insert(module, start);
        };
        let build_id = build_id(&fs::read("/sys/kernel/notes").unwrap_or_default());
        match symbols.text() {
            None => add(HIDDEN_NAME, build_id, HIDDEN.start, HIDDEN.end - HIDDEN.start),
            Some(text) => add(NAME, build_id, text.start, text.end - text.start),
        }
        for (name, start, size) in parse_modules(&fs::read_to_string("/proc/modules").unwrap_or_default()) {
            let notes = fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id")).unwrap_or_default();
            add(&format!("[{name}]"), self::build_id(&notes), start, size);
        }
        Self { symbols, starts }
    }

    /// Returns the name of the function at an offset of the kernel's text or of a module.
    pub fn function_at(&self, module: ModuleIdx, offset: FileOffset) -> Option<&str> {
        let start = *self.starts.get(&module)?;
        self.symbols.function_at(start, start.checked_add(offset.0)?)
    }

    /// Returns a sentence if the names are not known.
    pub fn note(&self) -> Option<String> {
        const LIMIT: &str = "/proc/sys/kernel/kptr_restrict";
        if self.symbols.text().is_some() || self.starts.is_empty() {
            return None;
        }
        let limit = fs::read_to_string(LIMIT).unwrap_or_default();
        let limit = limit.trim();
        Some(format!(
            "the kernel's functions have no names, because /proc/kallsyms hides its addresses from this user (kernel.kptr_restrict is {limit}): record as root, or `sysctl kernel.kptr_restrict=0`"
        ))
    }
}

/// The functions of the running kernel by their offsets from `_text`, for profiles that perf took
/// on this machine.
#[derive(Debug)]
pub struct KernelFunctions(KernelSymbols);

impl KernelFunctions {
    /// The name of the kernel's text in profiles of perf.
    pub const MODULE: &str = NAME;

    /// Reads the functions of the running kernel. `None`: it is another build, or this user may not
    /// see its addresses.
    #[must_use]
    pub fn of_build(build_id: &BuildId) -> Option<Self> {
        let running = self::build_id(&fs::read("/sys/kernel/notes").ok()?)?;
        let symbols = (running == *build_id).then(KernelSymbols::of_this_machine)?;
        symbols.text().map(|_| Self(symbols))
    }

    /// Returns the name of the function at an offset from the start of the kernel's text.
    #[must_use]
    pub fn function_at(&self, offset: FileOffset) -> Option<&str> {
        let text = self.0.text()?;
        let address = text.start.checked_add(offset.0)?;
        let is_text = text.contains(&address);
        is_text.then(|| self.0.function_at(text.start, address))?
    }
}

/// Returns the name, address and size of each module whose address is not hidden.
fn parse_modules(text: &str) -> Vec<(&str, u64, u64)> {
    let module = |line: &'_ str| -> Option<(usize, u64, u64)> {
        let words: Vec<_> = line.split_whitespace().collect();
        let address = words.get(5)?.strip_prefix("0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let size = words.get(1)?.parse().ok()?;
        (address != 0).then_some((words.first()?.len(), address, size))
    };
    let lines = text.lines();
    lines
        .filter_map(|line| {
            let (length, address, size) = module(line)?;
            Some((line.get(..length)?, address, size))
        })
        .collect()
}

/// Returns the build id in ELF notes: name size, content size, type, and name and content, each
/// padded to 4 bytes.
fn build_id(notes: &[u8]) -> Option<BuildId> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut rest = notes;
    loop {
        let (header, after) = rest.split_at_checked(12)?;
        let number = |at: usize| {
            let bytes = header.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let (name, content, kind) = (number(0)? as usize, number(4)? as usize, number(8)?);
        let start = name.next_multiple_of(4);
        if kind == NT_GNU_BUILD_ID && after.get(..name)? == b"GNU\0" {
            return BuildId::new(after.get(start..start.checked_add(content)?)?);
        }
        rest = after.get(start.checked_add(content.next_multiple_of(4))?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_another_build_are_unknown() {
        let other = BuildId::new(&[1; 20]).unwrap();
        assert!(KernelFunctions::of_build(&other).is_none());
        let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
        let running = build_id(&notes).and_then(|running| KernelFunctions::of_build(&running));
        let Some(running) = running else {
            eprintln!("skipped: the running kernel has no build id or hides its addresses");
            return;
        };
        assert!(running.function_at(FileOffset(0x1000)).is_some());
        assert_eq!(running.function_at(FileOffset(1 << 40)), None);
        assert_eq!(running.function_at(FileOffset(u64::MAX)), None);
    }

    fn mapped(list: &str) -> (Kernel, Modules, AddressSpaces<ModuleIdx>) {
        let (mut modules, mut spaces) = (Modules::new(0), AddressSpaces::default());
        let symbols = KernelSymbols::parse(list.as_bytes());
        let kernel = Kernel::with(symbols, &mut modules, &mut spaces);
        (kernel, modules, spaces)
    }

    #[test]
    fn offsets_do_not_depend_on_the_place_of_the_kernel() {
        for start in [0xffff_ffff_8100_0000_u64, 0xffff_ffff_9c40_0000] {
            let [work, end] = [start + 0x40, start + 0x1000];
            let list = format!("{start:x} T _text\n{work:x} T work\n{end:x} T _etext\n");
            let (kernel, modules, spaces) = mapped(&list);
            let found = spaces.find(None, start + 0x44).unwrap();
            assert_eq!(found.offset, FileOffset(0x44));
            assert_eq!(kernel.function_at(found.module, found.offset), Some("work"));
            assert_eq!(&*modules.key(found.module).unwrap().path, NAME);
            assert_eq!(kernel.note(), None);
        }
    }

    #[test]
    fn hidden_kernel_has_offsets_and_a_note() {
        let (kernel, modules, spaces) = mapped("0000000000000000 T _text\n0000000000000000 T _etext\n");
        let found = spaces.find(None, 0xffff_ffff_8123_4567).unwrap();
        assert_eq!(found.offset, FileOffset(0x0123_4567));
        assert_eq!(&*modules.key(found.module).unwrap().path, HIDDEN_NAME);
        assert_eq!(kernel.function_at(found.module, found.offset), None);
        assert!(kernel.note().unwrap().contains("kernel.kptr_restrict"));
        assert_eq!(Kernel::default().note(), None);
    }

    #[test]
    fn modules_with_addresses_are_read() {
        let text = "loop 40960 0 - Live 0xffffffffc0010000\nhidden 10 0 - Live 0x0000000000000000\nbad\n";
        assert_eq!(
            parse_modules(text),
            [("loop", 40960, 0xffff_ffff_c001_0000)].map(|(n, s, a)| (n, a, s))
        );
    }

    #[test]
    fn build_id_is_found_after_other_notes() {
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let mut note = Vec::new();
            note.extend((name.len() as u32).to_le_bytes());
            note.extend((content.len() as u32).to_le_bytes());
            note.extend(kind.to_le_bytes());
            for part in [name, content] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let notes = [
            note(b"Linux\0", 0x101, &[1, 2, 3, 4, 5]),
            note(b"GNU\0", 3, &[9; 20]),
        ]
        .concat();
        assert_eq!(build_id(&notes), BuildId::new(&[9; 20]));
        for length in 0..notes.len() {
            assert_eq!(build_id(&notes[..length]), None);
        }
    }
}
