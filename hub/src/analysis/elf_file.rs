//! The child process that reads an ELF file for the symbol service:
//! `backtrail-hub elf inspect|section|index FILE --output FILE`.

mod index;

use super::confine::{ChildLimits, TaskFiles, confine};
use super::exit::{EXIT_REFUSED, status_of};
use clap::{Args, ValueEnum};
use object::elf::{
    FileHeader32, FileHeader64, NT_GNU_BUILD_ID, SHF_EXECINSTR, SHT_NOBITS, SHT_NOTE, SHT_SYMTAB,
};
use object::read::elf::{FileHeader, SectionHeader, SectionTable};
use object::{Endianness, FileKind, ReadCache};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The most bytes of a build id.
const MAX_BUILD_ID: usize = 64;

/// The arguments of `elf`.
#[derive(Clone, Debug, Args)]
pub struct ElfArguments {
    /// The task.
    #[arg(value_enum)]
    pub task: ElfTask,
    /// The file.
    pub file: PathBuf,
    /// The section, for the task `section`.
    #[arg(long, allow_hyphen_values = true)]
    pub section: Option<String>,
    /// The new file with the content of the section, or the GSYM of the index.
    #[arg(long)]
    pub target: Option<PathBuf>,
    /// The new file with the types of the index.
    #[arg(long)]
    pub types: Option<PathBuf>,
    /// A directory with debug files by build id, for the task `index`.
    #[arg(long)]
    pub debug_dir: Option<PathBuf>,
    /// The file for the result, as JSON.
    #[arg(long)]
    pub output: PathBuf,
    /// Resources.
    #[command(flatten)]
    pub limits: ChildLimits,
}

/// The tasks of the child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ElfTask {
    /// Reads what the file has.
    Inspect,
    /// Copies a section.
    Section,
    /// Makes an index of the symbols.
    Index,
}

impl ElfTask {
    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::Section => "section",
            Self::Index => "index",
        }
    }
}

/// The parts of an ELF file that decide what it is good for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ElfContents {
    /// The build id, in hexadecimal.
    pub build_id: Option<String>,
    /// Whether it has machine code.
    pub has_code: bool,
    /// Whether it has a symbol table that `strip` would remove, or a packed one
    /// (`.gnu_debugdata`).
    pub has_symbols: bool,
    /// Whether it has DWARF.
    pub has_debug_info: bool,
    /// Whether it is a package of split DWARF (`.dwp`).
    pub is_dwarf_package: bool,
}

impl ElfContents {
    /// Returns how much the file says of functions: 0 nothing, 1 their names, 2 lines and
    /// variables.
    #[must_use]
    pub fn detail(&self) -> i64 {
        match (self.has_debug_info, self.has_symbols) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    }
}

/// The result of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfResult {
    /// The parts of the file.
    pub contents: ElfContents,
    /// Whether the section was found and copied.
    pub has_section: bool,
}

/// Confines this process, does the task, writes the result, and returns the exit status.
///
/// The reason of a failure is one sentence on standard error.
#[must_use]
pub fn run(arguments: &ElfArguments) -> ExitCode {
    let files = TaskFiles {
        readable: std::iter::once(&arguments.file)
            .chain(&arguments.debug_dir)
            .map(PathBuf::as_path)
            .collect(),
        targets: std::iter::once(&arguments.output)
            .chain(&arguments.target)
            .chain(&arguments.types)
            .map(PathBuf::as_path)
            .collect(),
    };
    let done = confine(&arguments.limits, &files)
        .map_err(|reason| (1, reason))
        .and_then(|()| {
            let result = work(arguments).map_err(|error| (EXIT_REFUSED, error))?;
            let json = serde_json::to_vec(&result).map_err(|error| (1, error.to_string()))?;
            std::fs::write(&arguments.output, json)
                .map_err(|error| (status_of(&error, 1), format!("cannot write the result: {error}")))
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, reason)) => {
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::from(status)
        }
    }
}

fn work(arguments: &ElfArguments) -> Result<ElfResult, String> {
    match (arguments.task, &arguments.section, &arguments.target) {
        (ElfTask::Inspect, ..) => Ok(ElfResult {
            contents: inspect(&arguments.file)?,
            has_section: false,
        }),
        (ElfTask::Section, Some(name), Some(target)) => {
            let has_section = copy_section(&arguments.file, name, target)?;
            Ok(ElfResult {
                contents: ElfContents::default(),
                has_section,
            })
        }
        (ElfTask::Index, _, Some(gsym)) => {
            let types = arguments
                .types
                .as_deref()
                .ok_or("the option --types is missing")?;
            index::make(&arguments.file, arguments.debug_dir.as_deref(), gsym, types)?;
            Ok(ElfResult::default())
        }
        (ElfTask::Index, ..) => Err("the option --target is missing".to_owned()),
        (ElfTask::Section, ..) => Err("the options --section and --target are missing".to_owned()),
    }
}

/// Reads the parts of an ELF file.
///
/// # Errors
/// Fails with one sentence if the file cannot be read, or is no whole ELF file.
pub fn inspect(path: &Path) -> Result<ElfContents, String> {
    let file = open(path)?;
    let length = length(&file)?;
    let data = ReadCache::new(file);
    match kind(&data)? {
        FileKind::Elf32 => contents::<FileHeader32<Endianness>>(&data, length),
        _ => contents::<FileHeader64<Endianness>>(&data, length),
    }
}

/// Copies the content of a section to a new file, as it is stored. Returns `false` if the file has
/// no such section, or no content of it.
///
/// # Errors
/// Fails with one sentence if the file cannot be read, if it is no whole ELF file, or if the new
/// file cannot be written.
pub fn copy_section(path: &Path, name: &str, target: &Path) -> Result<bool, String> {
    let data = ReadCache::new(open(path)?);
    let range = match kind(&data)? {
        FileKind::Elf32 => section_range::<FileHeader32<Endianness>>(&data, name)?,
        _ => section_range::<FileHeader64<Endianness>>(&data, name)?,
    };
    let Some((offset, size)) = range else {
        return Ok(false);
    };
    let mut file = open(path)?;
    if offset
        .checked_add(size)
        .is_none_or(|end| end > length(&file).unwrap_or(0))
    {
        return Err(TRUNCATED.to_owned());
    }
    let unreadable = |error| format!("cannot read the file: {error}");
    file.seek(SeekFrom::Start(offset)).map_err(unreadable)?;
    let mut copy = File::create_new(target).map_err(|error| format!("cannot write the section: {error}"))?;
    let copied = std::io::copy(&mut file.take(size), &mut copy)
        .map_err(|error| format!("cannot copy the section: {error}"))?;
    Ok(copied == size)
}

const TRUNCATED: &str = "the ELF file is truncated: a section ends after the end of the file";

fn open(path: &Path) -> Result<File, String> {
    File::open(path).map_err(|error| format!("cannot open the file: {error}"))
}

fn length(file: &File) -> Result<u64, String> {
    let found = file
        .metadata()
        .map_err(|error| format!("cannot read the file: {error}"))?;
    Ok(found.len())
}

/// Returns whether a file is a 32-bit or a 64-bit ELF file. Others are refused.
fn kind(data: &ReadCache<File>) -> Result<FileKind, String> {
    match FileKind::parse(data) {
        Ok(kind @ (FileKind::Elf32 | FileKind::Elf64)) => Ok(kind),
        _ if begins_with(data, b"PK\x03\x04") || begins_with(data, b"SYSB") => Err(
            "this is an archive of source files; the hub stores ELF files only, so upload without \
             sources"
                .to_owned(),
        ),
        _ => Err("this is not an ELF file".to_owned()),
    }
}

fn begins_with(data: &ReadCache<File>, magic: &[u8]) -> bool {
    use object::ReadRef;
    data.read_bytes_at(0, magic.len() as u64)
        .is_ok_and(|found| found == magic)
}

fn damaged(error: object::Error) -> String {
    format!("the ELF file is damaged: {error}")
}

fn contents<E: FileHeader<Endian = Endianness>>(
    data: &ReadCache<File>,
    length: u64,
) -> Result<ElfContents, String> {
    let header = E::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let sections: SectionTable<'_, E, _> = header.sections(endian, data).map_err(damaged)?;
    let mut found = ElfContents::default();
    for section in sections.iter() {
        let kind = section.sh_type(endian);
        let (offset, size): (u64, u64) = (section.sh_offset(endian).into(), section.sh_size(endian).into());
        if kind == SHT_NOBITS || size == 0 {
            continue;
        }
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(TRUNCATED.to_owned());
        }
        let is_code = section.sh_flags(endian).contains(SHF_EXECINSTR);
        found.has_code |= kind == object::elf::SHT_PROGBITS && is_code;
        // The first entry of each table is empty.
        let entry: u64 = section.sh_entsize(endian).into();
        found.has_symbols |= kind == SHT_SYMTAB && size > entry;
        let name = sections.section_name(endian, section).map_err(damaged)?;
        found.has_debug_info |= matches!(name, b".debug_info" | b".zdebug_info");
        found.has_symbols |= name == b".gnu_debugdata";
        found.is_dwarf_package |= name == b".debug_cu_index";
        if kind == SHT_NOTE && found.build_id.is_none() {
            let notes = section.notes(endian, data).map_err(damaged)?;
            found.build_id = notes.and_then(|notes| build_id::<E>(endian, notes));
        }
    }
    if found.build_id.is_none() {
        // A file may have lost its section headers.
        for segment in header.program_headers(endian, data).map_err(damaged)? {
            use object::read::elf::ProgramHeader;
            let notes = segment.notes(endian, data).unwrap_or_default();
            if let Some(id) = notes.and_then(|notes| build_id::<E>(endian, notes)) {
                found.build_id = Some(id);
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the build id among notes.
fn build_id<E: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    mut notes: object::read::elf::NoteIterator<'_, E>,
) -> Option<String> {
    while let Ok(Some(note)) = notes.next() {
        let id = note.desc();
        if note.name() == b"GNU"
            && note.n_type(endian) == NT_GNU_BUILD_ID
            && (2..=MAX_BUILD_ID).contains(&id.len())
        {
            return Some(crate::objects::hexadecimal(id));
        }
    }
    None
}

fn section_range<E: FileHeader<Endian = Endianness>>(
    data: &ReadCache<File>,
    name: &str,
) -> Result<Option<(u64, u64)>, String> {
    let header = E::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let sections: SectionTable<'_, E, _> = header.sections(endian, data).map_err(damaged)?;
    let found = sections.section_by_name(endian, name.as_bytes());
    Ok(found
        .filter(|(_, section)| section.sh_type(endian) != SHT_NOBITS)
        .map(|(_, section)| (section.sh_offset(endian).into(), section.sh_size(endian).into()))
        // The first entry of the table has no name and no content.
        .filter(|&(_, size): &(u64, u64)| size > 0))
}

#[cfg(test)]
pub(crate) use index::make as make_index;

#[cfg(test)]
mod tests;
