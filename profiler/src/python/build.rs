//! The layout of a build of CPython, from its file.
//!
//! Sources: `Include/internal/pycore_frame.h`, `pycore_runtime.h` and `pycore_interp.h`,
//! `Include/cpython/code.h` and `pystate.h` of CPython 3.11 to 3.13. Since 3.13 the runtime begins
//! with a table of offsets (`_Py_DebugOffsets`).

use crate::elf_sections::ElfSections;
use backtrail_bpf::InterpreterRow;
use object::elf::PF_X;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadRef, SegmentFlags};

/// A file with CPython's interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonBuild {
    /// The version, as 0x030b for 3.11.
    pub version: u32,
    /// The offsets of members. `None`: the layout of this version is not known.
    layout: Option<Layout>,
}

/// The offsets, and the addresses of the runtime and of the type of code objects. The addresses
/// count from file offset 0, as the code is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    runtime: u64,
    code_type: u64,
    row: InterpreterRow,
}

impl PythonBuild {
    /// Finds the interpreter in an ELF file. `None`: it has none.
    #[must_use]
    pub fn of_elf<'d>(file: impl ReadRef<'d>) -> Option<Self> {
        // The symbols of other files are not read.
        ElfSections::parse(file).filter(|sections| sections.has(".PyRuntime"))?;
        let file = ElfFile64::<Endianness, _>::parse(file).ok()?;
        let runtime = file.section_by_name(".PyRuntime")?;
        let symbol = |wanted: &str| {
            let mut symbols = file.dynamic_symbols();
            symbols.find(|symbol| symbol.name() == Ok(wanted) && symbol.is_definition())
        };
        let version = symbol("Py_Version").and_then(|symbol| {
            let section = file.section_by_index(symbol.section_index()?).ok()?;
            let bytes = section.data_range(symbol.address(), 4).ok()??;
            bytes.try_into().ok().map(u32::from_le_bytes)
        });
        // The major and minor version.
        let version = version.unwrap_or(0) >> 16;
        let row = match version {
            0x030b => Some(PYTHON_3_11),
            0x030c => Some(PYTHON_3_12),
            0x030d => runtime
                .data_range(runtime.address(), OFFSETS)
                .ok()?
                .and_then(debug_offsets),
            _ => None,
        };
        let layout = row.zip(symbol("PyCode_Type")).and_then(|(row, code_type)| {
            let code = file.segments().find(|segment| {
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X)
            })?;
            let start = code.address().wrapping_sub(code.file_range().0);
            Some(Layout {
                runtime: runtime.address().wrapping_sub(start),
                code_type: code_type.address().wrapping_sub(start),
                row: InterpreterRow { version, ..row },
            })
        });
        Some(Self { version, layout })
    }

    /// Returns the interpreter of a process that has mapped file offset 0 at an address.
    #[must_use]
    pub fn interpreter(&self, bias: u64) -> Option<InterpreterRow> {
        let layout = self.layout?;
        Some(InterpreterRow {
            runtime: bias.wrapping_add(layout.runtime),
            code_type: bias.wrapping_add(layout.code_type),
            ..layout.row
        })
    }

    /// Returns a sentence if the layout is not known.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let [_, _, major, minor] = self.version.to_be_bytes();
        let name = match self.version {
            0 => "a Python of unknown version".to_owned(),
            _ => format!("Python {major}.{minor}"),
        };
        self.layout.is_none().then(|| {
            format!(
                "functions of {name} have no names: this version's frames are not known (3.11 to 3.13 are)"
            )
        })
    }
}

/// The row without version and addresses.
const PYTHON_3_11: InterpreterRow = InterpreterRow {
    runtime: 0,
    code_type: 0,
    version: 0,
    interpreters_head: 40,
    interpreter_next: 0,
    threads_head: 16,
    thread_next: 8,
    thread_id: 152,
    c_frame: 56,
    current_frame: 8,
    instructions: 184,
    first_line: 72,
    ascii_size: 48,
    compact_size: 72,
};

const PYTHON_3_12: InterpreterRow = InterpreterRow {
    threads_head: 72,
    thread_id: 136,
    current_frame: 0,
    instructions: 192,
    first_line: 68,
    ascii_size: 40,
    compact_size: 56,
    ..PYTHON_3_11
};

/// The bytes of the table of offsets that are read.
const OFFSETS: u64 = 71 * 8;

/// Reads the table of offsets of 3.13. `None`: the program reads these objects in another way.
fn debug_offsets(bytes: &[u8]) -> Option<InterpreterRow> {
    let word = |index: usize| {
        let bytes = bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let number = |index: usize| word(index).and_then(|word| u32::try_from(word).ok());
    if bytes.get(..8)? != b"xdebugpy" {
        return None;
    }
    // The caller, code, instruction and owner of a frame. The file, name and lines of the code. The
    // type of an object. The size and content of bytes. The state and length of a string.
    let fixed = [
        (29, 8),
        (30, 0),
        (31, 56),
        (33, 70),
        (35, 112),
        (37, 128),
        (38, 136),
        (39, 68),
        (45, 8),
        (65, 16),
        (66, 32),
        (68, 32),
        (69, 16),
    ];
    if fixed.iter().any(|(index, offset)| word(*index) != Some(*offset)) {
        return None;
    }
    let ascii_size = number(70)?;
    Some(InterpreterRow {
        interpreters_head: number(5)?,
        interpreter_next: number(8)?,
        threads_head: number(9)?,
        thread_next: number(21)?,
        thread_id: number(24)?,
        c_frame: 0,
        current_frame: number(23)?,
        instructions: number(43)?,
        first_line: number(39)?,
        ascii_size,
        compact_size: ascii_size.checked_add(16)?,
        ..PYTHON_3_12
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_from_the_runtime() {
        let mut words = [0_u64; 71];
        for (index, offset) in [
            (5, 632),
            (8, 7264),
            (9, 7344),
            (21, 8),
            (23, 72),
            (24, 152),
            (29, 8),
            (31, 56),
            (33, 70),
            (35, 112),
            (37, 128),
            (38, 136),
            (39, 68),
            (43, 200),
            (45, 8),
            (65, 16),
            (66, 32),
            (68, 32),
            (69, 16),
            (70, 40),
        ] {
            words[index] = offset;
        }
        words[0] = u64::from_le_bytes(*b"xdebugpy");
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let row = debug_offsets(&bytes).unwrap();
        assert_eq!((row.threads_head, row.instructions), (7344, 200));
        assert_eq!((row.current_frame, row.compact_size), (72, 56));
        assert_eq!(debug_offsets(&bytes[..bytes.len() - 1]), None);
        // A frame of another layout.
        let mut other = bytes.clone();
        other[31 * 8] = 64;
        assert_eq!(debug_offsets(&other), None);
        assert_eq!(debug_offsets(&[0; 71 * 8]), None);
    }

    #[test]
    fn other_files_have_no_interpreter() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(PythonBuild::of_elf(&*own), None);
        assert_eq!(PythonBuild::of_elf(&b"\x7fELF"[..]), None);
    }

    #[test]
    fn unknown_versions_have_a_note() {
        let build = |version| PythonBuild {
            version,
            layout: None,
        };
        assert!(build(0x030e).note().unwrap().contains("Python 3.14"));
        assert!(build(0).note().unwrap().contains("unknown version"));
        assert_eq!(build(0x030e).interpreter(0x1000), None);
    }
}
