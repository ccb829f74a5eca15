//! The code of the kernel and of its modules.
//!
//! Source: proc_kallsyms(5), proc_modules(5), `Documentation/ABI/testing/sysfs-kernel-notes`.

use crate::module_key::ModuleKey;
use crate::modules::{ModuleIdx, ModuleKind, Modules};
use backtrail_profile::{AddressSpaces, MappedModule};
use backtrail_pt::{BuildId, FileOffset};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};

/// The name of the kernel's text in profiles, as perf writes it.
const NAME: &str = "[kernel.kallsyms]";

/// Maps the kernel and its modules, as far as this user may know their addresses.
pub(crate) fn map(modules: &mut Modules, spaces: &mut AddressSpaces<ModuleIdx>) {
    let mut add = |name: &str, build_id: Option<BuildId>, start: u64, size: u64| {
        let key = ModuleKey {
            path: name.into(),
            build_id,
            file: None,
        };
        let module = modules.intern(key, ModuleKind::Kernel, None);
        let offset = FileOffset(0);
        spaces.map(None, start, size, MappedModule { module, offset });
    };
    let symbols = File::open("/proc/kallsyms").ok().map(BufReader::new);
    if let Some((start, end)) = symbols.and_then(text_range) {
        let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
        add(NAME, build_id(&notes), start, end - start);
    }
    for (name, start, size) in parse_modules(&fs::read_to_string("/proc/modules").unwrap_or_default()) {
        let notes = fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id")).unwrap_or_default();
        add(&format!("[{name}]"), build_id(&notes), start, size);
    }
}

/// Returns the addresses of `_text` and `_etext`, or `None` if they are hidden.
fn text_range(symbols: impl BufRead) -> Option<(u64, u64)> {
    let mut start = None;
    for line in symbols.lines() {
        let line = line.ok()?;
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        match words.nth(1)? {
            "_text" => start = Some(address),
            "_etext" => {
                return start
                    .filter(|start| *start != 0 && *start < address)
                    .map(|start| (start, address));
            }
            _ => {}
        }
    }
    None
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
    fn text_is_between_its_symbols() {
        let symbols = "ffffffff81000000 T startup_64\nffffffff81000000 T _text\nffffffff82000000 T _etext\n";
        assert_eq!(
            text_range(symbols.as_bytes()),
            Some((0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000))
        );
        let hidden = "0000000000000000 T _text\n0000000000000000 T _etext\n";
        assert_eq!(text_range(hidden.as_bytes()), None);
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
