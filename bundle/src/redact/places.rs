//! Overwrites values in the file of a core.

use super::{FILL, MAX_TEXT, MIN_VALUE, Secrets};
use crate::core::{Core, NT_FILE, NT_PRPSINFO, command_line_range};
use crate::elf::Elf;
use crate::{BundlePath, CancelToken, Error, Result, SharedBytes};
use memchr::memmem::Finder;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

/// The most places that are overwritten.
const MAX_PLACES: usize = 1 << 20;

/// Places in the file of a core: offset and size.
pub(super) type Places = BTreeSet<(u64, usize)>;

/// Returns the places in the file of a core that have a value.
pub(super) fn places(
    bytes: &SharedBytes,
    secrets: &Secrets,
    path: &BundlePath,
    cancel: &CancelToken,
) -> Result<Places> {
    let mut places = BTreeSet::new();
    let elf = Elf::parse(bytes, path)?;
    let size = bytes.len() as u64;
    // The notes have the command line, and registers. The paths of mapped files stay, because the
    // bundle's list of modules has them too.
    let head = elf.loads().map(|load| load.offset.0).min().unwrap_or(size);
    let notes = notes(&elf, bytes)?;
    let files = notes
        .files
        .map_or(0..0, |files| files.start.min(head)..files.end.min(head));
    let memory = elf.loads().map(|load| {
        let start = load.offset.0.min(size);
        start..load.offset.0.saturating_add(load.file_size).min(size)
    });
    let others = [0..files.start, files.end..head.min(size).max(files.end)];
    for part in memory.chain(others) {
        let start = part.start;
        let Some(memory) = bytes.slice(part) else {
            continue;
        };
        find_values(&memory, secrets, cancel, &mut |at, length| {
            let _ = places.insert((start + at as u64, length));
            match places.len() <= MAX_PLACES {
                true => Ok(()),
                false => Err(Error::unsupported(
                    path,
                    "the values to remove are in too many places",
                )),
            }
        })?;
    }
    if secrets.redaction.arguments {
        places.extend(notes.command_lines);
        places.extend(arguments(&elf, bytes, secrets).unwrap_or_default());
    }
    Ok(places)
}

/// The places of notes in the file of a core.
#[derive(Default)]
struct NotePlaces {
    /// `NT_FILE`.
    files: Option<Range<u64>>,
    /// The command line in each `NT_PRPSINFO`.
    command_lines: Places,
}

fn notes(elf: &Elf<'_>, bytes: &SharedBytes) -> Result<NotePlaces> {
    let mut places = NotePlaces::default();
    let base = bytes.as_ptr().addr();
    elf.each_note(|note| {
        let start = note.contents.as_ptr().addr().saturating_sub(base) as u64;
        match note.kind {
            NT_FILE => places.files = Some(start..start + note.contents.len() as u64),
            NT_PRPSINFO => {
                if let Some((at, size)) = command_line_range(note.contents) {
                    let _ = places.command_lines.insert((start + at as u64, size));
                }
            }
            _ => {}
        }
        Ok(true)
    })?;
    Ok(places)
}

/// Returns the places of the arguments with which the program started. The bytes between them,
/// which end them, stay.
fn arguments(elf: &Elf<'_>, bytes: &SharedBytes, secrets: &Secrets) -> Option<Places> {
    let range = secrets.arguments.clone()?;
    let load = elf.loads().find(|load| {
        let end = load.svma.0.saturating_add(load.file_size);
        load.svma.0 <= range.start && range.end <= end
    })?;
    let start = load.offset.0.checked_add(range.start - load.svma.0)?;
    let text = bytes.slice(start..start.checked_add(range.end - range.start)?)?;
    let mut places = Places::new();
    let mut at = start;
    for word in text.split(|byte| *byte == 0) {
        if !word.is_empty() {
            let _ = places.insert((at, word.len()));
        }
        at += word.len() as u64 + 1;
    }
    Some(places)
}

/// Calls `found` with offset and size of each value in some bytes.
fn find_values(
    memory: &[u8],
    secrets: &Secrets,
    cancel: &CancelToken,
    found: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    for name in &secrets.names {
        cancel.check()?;
        let name = format!("{name}=");
        for at in Finder::new(&name).find_iter(memory) {
            let is_start = at == 0 || memory.get(at - 1) == Some(&0);
            let rest = memory.get(at + name.len()..).unwrap_or_default();
            let text = rest.get(..rest.len().min(MAX_TEXT)).unwrap_or_default();
            let size = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            if is_start && size > 0 {
                found(at + name.len(), size)?;
            }
        }
    }
    for value in secrets.values.iter().filter(|value| value.len() >= MIN_VALUE) {
        cancel.check()?;
        for at in Finder::new(value).find_iter(memory) {
            found(at, value.len())?;
        }
    }
    Ok(())
}

/// Overwrites places of a file.
pub(super) fn overwrite(file: &mut File, target: &Path, places: &Places) -> Result<()> {
    let failed = || Error::io("write", target);
    let end = file.metadata().map_err(failed())?.len();
    for (offset, size) in places {
        // A place beyond the end is not in the file.
        if offset.saturating_add(*size as u64) > end {
            continue;
        }
        let _ = file.seek(SeekFrom::Start(*offset)).map_err(failed())?;
        file.write_all(&vec![FILL; *size]).map_err(failed())?;
    }
    Ok(())
}

/// Copies a core to a new file.
pub(super) fn copy_core(source: &Path, target: &Path, cancel: &CancelToken) -> Result<File> {
    let failed = || Error::io("write", target);
    let from = File::open(source).map_err(Error::io("open", source))?;
    let mut file = File::create_new(target).map_err(failed())?;
    cancel.or_canceled(cancel.copy(&from, &mut file).map_err(failed()))?;
    Ok(file)
}

/// Writes a core to a new file, without memory and without vector registers.
///
/// Memory that is executable and not writable stays. Decoding needs it, and it has the vDSO.
pub(super) fn write_without_memory(core: &Core, target: &Path) -> Result<File> {
    let failed = || Error::io("write", target);
    let mut contents = core.contents().clone();
    for segment in &mut contents.segments {
        if segment.writable || !segment.executable {
            segment.saved = 0;
        }
    }
    for thread in &mut contents.threads {
        thread.fpregs.clear();
        thread.xstate.clear();
    }
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(target)
        .map_err(failed())?;
    let memory = |address, out: &mut [u8]| core.memory(address, out);
    let _ = crate::core::write(&mut file, &contents, memory).map_err(failed())?;
    Ok(file)
}
