//! The compiled eBPF programs, and the structs that they share with user space.
//!
//! The programs are written in C (`src/*.bpf.c`), based on a small header (`src/kernel.h`). They
//! read kernel structs by CO-RE, so that one object works on all kernels. `cargo xtask bpf`
//! compiles them with a pinned compiler to the checked-in objects, so that building needs no eBPF
//! compiler.

mod call;
mod event;

pub use call::FunctionEvent;
pub use event::{CrashEvent, FRAMES, NO_USER, REGISTERS, SIGINFO_WORDS, StackFrame, siginfo_parts};

/// Bytes at an aligned address, which ELF readers require.
#[repr(C, align(8))]
struct Aligned<B: ?Sized>(B);

static CRASH_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../crash.bpf.o"));

static FUNCTION_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../function.bpf.o"));

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

/// The size of the chunks in which the stack is read (`CHUNK` in `src/crash_event.h`).
pub const STACK_CHUNK: usize = 512;
/// The maximum number of chunks (`MAX_CHUNKS`).
pub const MAX_STACK_CHUNKS: usize = 32;
