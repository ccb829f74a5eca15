//! Checks that the Rust structs have the layout of the C structs in the BTF of the compiled object.
//!
//! BTF: <https://docs.kernel.org/bpf/btf.html>, sections 2 (types) and 4 (the ELF section).
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_bpf::{
    CRASH, CodeRecord, CrashEvent, FUNCTION, FunctionEvent, HEAP, HeapEvent, HeapProcessRow, InterpreterRow,
    MappingRow, ModuleRow, ProcessRow, SAMPLE, SampleHead, StackFrame, TlsSlotRow,
};
use object::{Object as _, ObjectSection as _};
use std::mem::offset_of;

/// The layout of a struct: its size, and the name and offset of each member in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    size: usize,
    members: Vec<(String, usize)>,
}

/// Returns the layout of a Rust struct with the given fields.
macro_rules! layout_of {
    ($type:ident: $($field:ident)*) => {
        Layout {
            size: size_of::<$type>(),
            members: vec![$((stringify!($field).to_owned(), offset_of!($type, $field))),*],
        }
    };
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Returns the layout of the struct with this name in an object's BTF.
fn in_btf(object: &[u8], name: &str) -> Option<Layout> {
    const INT: usize = 1;
    const ARRAY: usize = 3;
    const STRUCT: usize = 4;
    const UNION: usize = 5;
    const ENUM: usize = 6;
    const FUNC_PROTO: usize = 13;
    const VAR: usize = 14;
    const DATASEC: usize = 15;
    const DECL_TAG: usize = 17;
    const ENUM64: usize = 19;
    let file = object::File::parse(object).unwrap();
    let btf = file.section_by_name(".BTF").unwrap().data().unwrap();
    assert_eq!(btf[..2], [0x9f, 0xeb], "the magic of BTF");
    let body = &btf[word(btf, 4)..];
    let types = &body[word(btf, 8)..][..word(btf, 12)];
    let strings = &body[word(btf, 16)..][..word(btf, 20)];
    let string = |at: usize| {
        let bytes = strings[at..].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let mut at = 0;
    while at < types.len() {
        let (type_name, info, size) = (word(types, at), word(types, at + 4), word(types, at + 8));
        let (kind, count) = (info >> 24 & 0x1f, info & 0xffff);
        at += 12;
        if kind == STRUCT && string(type_name) == name {
            let member = |index| {
                (
                    string(word(types, at + 12 * index)),
                    word(types, at + 12 * index + 8) / 8,
                )
            };
            let members = (0..count).map(member).collect();
            return Some(Layout { size, members });
        }
        at += match kind {
            INT | VAR | DECL_TAG => 4,
            ARRAY => 12,
            STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
            ENUM | FUNC_PROTO => 8 * count,
            _ => 0,
        };
    }
    None
}

#[test]
fn crash_event_layout_matches_c() {
    let layout = layout_of!(CrashEvent: at at_boot started cgroup stack_at fs_base gs_base fault_address fault_trap registers
        pid tid inner_pid inner_tid pid_namespace mount_namespace user effective_user cpu siginfo_parts stack_len frames_len ds es fs gs comm siginfo frames);
    assert_eq!(in_btf(CRASH, "crash_event"), Some(layout));
}

#[test]
fn frame_layout_matches_c() {
    let layout = layout_of!(StackFrame: status build_id offset);
    assert_eq!(in_btf(CRASH, "frame"), Some(layout));
}

#[test]
fn function_event_layout_matches_c() {
    let layout = layout_of!(FunctionEvent: at lasted pid tid cpu depth);
    assert_eq!(in_btf(FUNCTION, "function_event"), Some(layout));
}

#[test]
fn heap_layouts_match_c() {
    let event = layout_of!(HeapEvent: began ended argument size result caller sp bp pid tid image function words stack);
    assert_eq!(in_btf(HEAP, "heap_event"), Some(event));
    let process = layout_of!(HeapProcessRow: lost lost_at repeats unused);
    assert_eq!(in_btf(HEAP, "heap_process"), Some(process));
}

#[test]
fn rows_of_the_sampler_match_c() {
    let mapping = layout_of!(MappingRow: start end bias module unused);
    assert_eq!(in_btf(SAMPLE, "mapping"), Some(mapping));
    let module = layout_of!(ModuleRow: state first_row rows unused);
    assert_eq!(in_btf(SAMPLE, "module"), Some(module));
    let process = layout_of!(ProcessRow: first mappings);
    assert_eq!(in_btf(SAMPLE, "process"), Some(process));
    let interpreter = layout_of!(InterpreterRow: runtime code_type version interpreters_head interpreter_next
        threads_head thread_next thread_id c_frame current_frame instructions first_line ascii_size compact_size);
    assert_eq!(in_btf(SAMPLE, "interpreter"), Some(interpreter));
    let code = in_btf(SAMPLE, "code_event").unwrap();
    assert_eq!(code.size, size_of::<CodeRecord>());
    assert_eq!(code.members.last(), Some(&("lines".to_owned(), 800)));
    let slot = layout_of!(TlsSlotRow: offset generation kind module);
    assert_eq!(in_btf(SAMPLE, "tls_slot"), Some(slot));
    let event = in_btf(SAMPLE, "sample_event").unwrap();
    let last = event.members.last().cloned();
    assert_eq!(last, Some(("words".to_owned(), size_of::<SampleHead>())));
}

#[test]
fn layout_differences_are_detected() {
    #[repr(C)]
    struct Shifted {
        status: i32,
        offset: u64,
        build_id: [u8; 20],
    }
    let shifted = layout_of!(Shifted: status offset build_id);
    let found = in_btf(CRASH, "frame").unwrap();
    assert_eq!(found.size + 8, shifted.size);
    assert_ne!(found.members, shifted.members);
    assert_eq!(in_btf(CRASH, "no_such_struct"), None);
}
