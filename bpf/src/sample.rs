//! The record of a sample, and the rows of the maps, as declared in `sample_event.h`.

/// The most words of a user stack in a record.
pub const WORDS: usize = 2048;
/// The most frames of a kernel stack in a record.
pub const KERNEL_FRAMES: usize = 127;
/// The number of programs in the object: `sample_0` and so on.
pub const SAMPLE_PROGRAMS: usize = 6;
/// The bit of a word of a user stack from which on it has the number of a module.
pub const MODULE_SHIFT: u32 = 48;
/// The number of a module in a word that is the first one of a Python frame. The word has the
/// address of a code object. The second word has its hash in the high half, and the offset of the
/// instruction in the low half.
pub const PYTHON_MODULE: u64 = 0xffff;
/// `program` of a [`CodeEvent`].
const CODE_RECORD: u32 = u32::MAX;
/// The most mappings of a process.
pub const MAX_PROCESS_MAPPINGS: usize = (1 << 16) - 1;
/// The most rows of a module.
pub const MAX_MODULE_ROWS: usize = 1 << 22;

/// The reasons why a walk ended ([`SampleHead::end`]).
pub mod sample_end {
    /// The start of the thread.
    pub const COMPLETE: u8 = 0;
    /// The code has no table, and its frame pointer leads nowhere.
    pub const NO_TABLE: u8 = 1;
    /// The table has no rule for the code.
    pub const NO_RULE: u8 = 2;
    /// The stack cannot be read.
    pub const NO_BYTES: u8 = 3;
    /// The frames do not lead upward.
    pub const INVALID: u8 = 4;
    /// The stack has more words than a record.
    pub const TOO_DEEP: u8 = 5;
    /// The thread runs no program.
    pub const NO_USER: u8 = 6;
}

/// The states of a module's table ([`ModuleRow::state`]).
pub mod table_state {
    /// User space has not read it.
    pub const UNREAD: u32 = 0;
    /// There is none.
    pub const MISSING: u32 = 1;
    /// The rows are valid.
    pub const READY: u32 = 2;
}

/// The part of a record before the words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleHead {
    /// The weight of the sample.
    pub weight: u64,
    /// The number of the program that made the record.
    pub program: u32,
    /// One of the constants of [`sample_end`].
    pub end: u8,
    unused: u8,
    /// The number of words of the user stack.
    pub user_len: u16,
    /// The number of words of the kernel stack.
    pub kernel_len: u32,
    /// The number of bytes of the thread's context.
    pub context_len: u16,
    unused2: u16,
}

/// A sample, as the program writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleEvent {
    /// The part before the words.
    pub head: SampleHead,
    /// The user stack, innermost first. A word has an address inside the instruction that ran or
    /// made the call, and the number of its module ([`MODULE_SHIFT`]).
    pub user: Vec<u64>,
    /// The addresses of the kernel's stack, innermost first. Those of callers are return addresses.
    pub kernel: Vec<u64>,
    /// The record of the thread's request (`thread_context.h`), or nothing.
    pub context: Vec<u8>,
}

impl SampleEvent {
    /// Parses a record, which padding may follow. `None`: it is truncated.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(size_of::<SampleHead>())?;
        // SAFETY: `head` has the size of the struct, whose fields are integers without padding. Any
        // bytes are a valid value, and the read needs no alignment.
        let head = unsafe { head.as_ptr().cast::<SampleHead>().read_unaligned() };
        let (user, kernel) = (usize::from(head.user_len), usize::try_from(head.kernel_len).ok()?);
        if user > WORDS || kernel > KERNEL_FRAMES {
            return None;
        }
        let (user, rest) = rest.split_at_checked(user * 8)?;
        let words = |bytes: &[u8]| -> Vec<u64> {
            let words = bytes.chunks_exact(8);
            words
                .map(|word| word.try_into().map_or(0, u64::from_le_bytes))
                .collect()
        };
        let (kernel, rest) = rest.split_at_checked(kernel * 8)?;
        Some(Self {
            head,
            user: words(user),
            kernel: words(kernel),
            context: rest.get(..usize::from(head.context_len))?.to_vec(),
        })
    }
}

/// A code object of Python, which later samples refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeEvent {
    /// The address.
    pub code: u64,
    /// A hash of the content, which another object at the address does not have.
    pub hash: u32,
    /// The process, in the first pid namespace.
    pub pid: u32,
    /// The line of its definition.
    pub first_line: u32,
    /// The bytes of each character of the name.
    pub qualname_kind: u8,
    /// The bytes of each character of the file.
    pub file_kind: u8,
    /// The name, up to a limit.
    pub qualname: Vec<u8>,
    /// The file, up to a limit.
    pub file: Vec<u8>,
    /// The table of lines, up to a limit.
    pub lines: Vec<u8>,
}

/// The record of a code object, as the program writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CodeRecord {
    code: u64,
    program: u32,
    hash: u32,
    pid: u32,
    first_line: u32,
    qualname_len: u16,
    file_len: u16,
    lines_len: u16,
    qualname_kind: u8,
    file_kind: u8,
    qualname: [u8; 256],
    file: [u8; 512],
    lines: [u8; 2048],
}

impl CodeEvent {
    /// Parses a record, which padding may follow. `None`: it is truncated, or is another one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..size_of::<CodeRecord>())?;
        // SAFETY: `bytes` has the size of the struct, whose fields are integers without padding.
        // Any bytes are a valid value, and the read needs no alignment.
        let record = unsafe { bytes.as_ptr().cast::<CodeRecord>().read_unaligned() };
        if record.program != CODE_RECORD {
            return None;
        }
        Some(Self {
            code: record.code,
            hash: record.hash,
            pid: record.pid,
            first_line: record.first_line,
            qualname_kind: record.qualname_kind,
            file_kind: record.file_kind,
            qualname: record.qualname.get(..record.qualname_len.into())?.to_vec(),
            file: record.file.get(..record.file_len.into())?.to_vec(),
            lines: record.lines.get(..record.lines_len.into())?.to_vec(),
        })
    }
}

/// The interpreter of a process that runs Python, in the map `interpreters`: the addresses of its
/// state, and the offsets of members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the members of CPython's structs")]
pub struct InterpreterRow {
    pub runtime: u64,
    pub code_type: u64,
    pub version: u32,
    pub interpreters_head: u32,
    pub interpreter_next: u32,
    pub threads_head: u32,
    pub thread_next: u32,
    pub thread_id: u32,
    pub c_frame: u32,
    pub current_frame: u32,
    pub instructions: u32,
    pub first_line: u32,
    pub ascii_size: u32,
    pub compact_size: u32,
}

/// A mapping with code, in the map `mappings`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingRow {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The address of file offset 0. It may wrap.
    pub bias: u64,
    /// The index in the map `modules`, or 0 for memory without a file.
    pub module: u32,
    /// Zero.
    pub unused: u32,
}

/// A module, in the map `modules`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleRow {
    /// One of the constants of [`table_state`].
    pub state: u32,
    /// The index of its first row in the map `rows`.
    pub first_row: u32,
    /// The number of its rows.
    pub rows: u32,
    /// Zero.
    pub unused: u32,
}

/// The mappings of a process, in the map `processes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessRow {
    /// The index of the first in the map `mappings`.
    pub first: u32,
    /// The number.
    pub mappings: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(user: u16, kernel: u32, words: usize) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<SampleHead>()];
        bytes[14..16].copy_from_slice(&user.to_le_bytes());
        bytes[16..20].copy_from_slice(&kernel.to_le_bytes());
        bytes.extend((1..=words as u64).flat_map(u64::to_le_bytes));
        bytes
    }

    #[test]
    fn words_are_split_in_user_and_kernel() {
        let bytes = record(2, 3, 6);
        let event = SampleEvent::parse(&bytes).unwrap();
        assert_eq!((event.user, event.kernel), (vec![1, 2], vec![3, 4, 5]));
        let whole = size_of::<SampleHead>() + 40;
        assert!((0..whole).all(|end| SampleEvent::parse(&bytes[..end]).is_none()));
    }

    #[test]
    fn context_follows_the_words() {
        let mut bytes = record(1, 1, 2);
        bytes[20] = 3;
        bytes.extend([7, 8, 9, 0]);
        let event = SampleEvent::parse(&bytes).unwrap();
        assert_eq!((event.kernel, event.context), (vec![2], vec![7, 8, 9]));
        assert_eq!(SampleEvent::parse(&bytes[..bytes.len() - 2]), None);
    }

    #[test]
    fn impossible_lengths_are_none() {
        assert!(SampleEvent::parse(&record(WORDS as u16, 0, WORDS)).is_some());
        assert!(SampleEvent::parse(&record(WORDS as u16 + 1, 0, WORDS + 9)).is_none());
        assert!(SampleEvent::parse(&record(0, KERNEL_FRAMES as u32 + 1, 200)).is_none());
        assert!(SampleEvent::parse(&record(0, u32::MAX, 9)).is_none());
    }

    #[test]
    fn code_record_is_no_sample() {
        let mut bytes = vec![0; size_of::<CodeRecord>()];
        assert_eq!(CodeEvent::parse(&bytes), None);
        bytes[8..12].copy_from_slice(&CODE_RECORD.to_le_bytes());
        bytes[24..26].copy_from_slice(&3_u16.to_le_bytes());
        bytes[32..35].copy_from_slice(b"run");
        assert_eq!(CodeEvent::parse(&bytes).unwrap().qualname, b"run");
        assert_eq!(CodeEvent::parse(&bytes[..bytes.len() - 1]), None);
        // More characters than the record has.
        bytes[24..26].copy_from_slice(&257_u16.to_le_bytes());
        assert_eq!(CodeEvent::parse(&bytes), None);
    }

    #[test]
    fn constants_match_c_header() {
        let header = include_str!("sample_event.h");
        for line in [
            format!("\tWORDS = {WORDS},"),
            format!("KERNEL_FRAMES = {KERNEL_FRAMES},"),
            format!("MODULE_SHIFT = {MODULE_SHIFT} "),
            format!("END_NO_USER = {},", sample_end::NO_USER),
            format!("END_TOO_DEEP = {},", sample_end::TOO_DEEP),
            format!("TABLE_READY = {},", table_state::READY),
        ] {
            assert!(header.contains(&line), "{line}");
        }
        let thinning = include_str!("thinning.h");
        assert!(thinning.contains(&format!("PROGRAMS = {SAMPLE_PROGRAMS} ")));
        let programs = include_str!("sample.bpf.c").matches("\nPROGRAM(").count();
        assert_eq!(programs, SAMPLE_PROGRAMS);
    }
}
