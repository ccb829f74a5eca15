//! The compiled eBPF programs, and the structs that they share with user space.
//!
//! The programs are written in C (`src/*.bpf.c`), based on a small header (`src/kernel.h`). They
//! read kernel structs by CO-RE, so that one object works on all kernels. `cargo xtask bpf`
//! compiles them with a pinned compiler to the checked-in objects, so that building needs no eBPF
//! compiler.

mod call;
mod event;
mod heap;
mod sample;
mod thread_context;

pub use call::FunctionEvent;
pub use event::{CrashEvent, FRAMES, NO_USER, REGISTERS, SIGINFO_WORDS, StackFrame, siginfo_parts};
pub use heap::{HEAP_STACK_WORDS, HeapEvent, HeapProcessRow, heap_cookie};
pub use sample::{
    CodeEvent, CodeRecord, InterpreterRow, KERNEL_FRAMES, MAX_MODULE_ROWS, MAX_PROCESS_MAPPINGS,
    MODULE_SHIFT, MappingRow, ModuleRow, PYTHON_MODULE, ProcessRow, SAMPLE_PROGRAMS, SampleEvent, SampleHead,
    WORDS, sample_end, table_state,
};
pub use thread_context::{TlsSlotRow, tls_kind};

/// Bytes at an aligned address, which ELF readers require.
#[repr(C, align(8))]
struct Aligned<B: ?Sized>(B);

static CRASH_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../crash.bpf.o"));

static FUNCTION_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../function.bpf.o"));

static HEAP_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../heap.bpf.o"));

static SAMPLE_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../sample.bpf.o"));

/// The object of the crash probe (`src/crash.bpf.c`), aligned to 8 bytes.
///
/// Programs: `btf_tracepoint`, `fentry`, `kprobe`, `raw_tracepoint`, `tracepoint`. Constants to set
/// before loading: `signals` (u64), `stack_chunks` (u32), `only` (u32). Maps: the ring `crashes` of
/// [`CrashEvent`]s, the counter `lost`, the set `spared` of process ids.
pub static CRASH: &[u8] = &CRASH_OBJECT.0;

/// The object of the function trigger (`src/function.bpf.c`), aligned to 8 bytes.
///
/// Programs: `entered`, `began`, `ended`. Constants to set before loading: `longer_than` (u64,
/// nanoseconds), `only` (u32). Maps: the ring `functions` of [`FunctionEvent`]s, the counter
/// `lost`.
pub static FUNCTION: &[u8] = &FUNCTION_OBJECT.0;

/// The object of the heap probe (`src/heap.bpf.c`), aligned to 8 bytes.
///
/// Programs: `called` and `returned` for functions that allocate, `freed` for those that free, each
/// attached with the number of the function and [`heap_cookie`]. Maps: the ring `calls` of
/// [`HeapEvent`]s, and `processes` of [`HeapProcessRow`]s by process id.
pub static HEAP: &[u8] = &HEAP_OBJECT.0;

/// The object of the stack sampler (`src/sample.bpf.c`), aligned to 8 bytes.
///
/// Programs: `sample_0` to `sample_5`, one for each event. Maps: `processes` of [`ProcessRow`]s and
/// `interpreters` of [`InterpreterRow`]s by process id, `mappings` of [`MappingRow`]s, `modules` of
/// [`ModuleRow`]s. The map `rows` has the unwind tables; set its size before loading. The map
/// `outputs` has an event of each processor for the [`SampleEvent`]s and [`CodeEvent`]s.
pub static SAMPLE: &[u8] = &SAMPLE_OBJECT.0;

/// The size of the chunks in which the stack is read (`CHUNK` in `src/crash_event.h`).
pub const STACK_CHUNK: usize = 512;
/// The maximum number of chunks (`MAX_CHUNKS`).
pub const MAX_STACK_CHUNKS: usize = 32;
