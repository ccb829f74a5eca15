//! The eBPF programs, compiled, and the structs that they share with user space.
//!
//! The programs are C (`src/*.bpf.c`) and stand on a header of our own (`src/kernel.h`); they read the
//! kernel's structs by CO-RE, so that one object serves all kernels. `cargo xtask bpf` compiles them with a
//! pinned compiler to the objects that are checked in: nobody else needs a compiler for eBPF.

mod call;
mod event;

pub use call::FunctionEvent;
pub use event::{CrashEvent, FRAMES, NO_USER, REGISTERS, SIGINFO_WORDS, StackFrame, told};

/// Bytes at an address that a reader of ELF may rely on.
#[repr(C, align(8))]
struct Aligned<B: ?Sized>(B);

static CRASH_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../crash.bpf.o"));

static FUNCTION_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../function.bpf.o"));

/// The object of the crash probe (`src/crash.bpf.c`), aligned to 8 bytes.
///
/// Programs: `btf_tracepoint`, `fentry`, `kprobe`, `raw_tracepoint`, `tracepoint`. Constants to set before it is
/// loaded: `signals` (u64), `stack_chunks` (u32), `only` (u32). Maps: the ring `crashes` of [`CrashEvent`]s, the
/// counter `lost`, the set `spared` of process ids.
pub static CRASH: &[u8] = &CRASH_OBJECT.0;

/// The object of the function trigger (`src/function.bpf.c`), aligned to 8 bytes.
///
/// Programs: `entered`, `began`, `ended`. Constants to set before it is loaded: `longer_than` (u64, nanoseconds), `only` (u32).
/// Maps: the ring `functions` of [`FunctionEvent`]s, the counter `lost`.
pub static FUNCTION: &[u8] = &FUNCTION_OBJECT.0;

/// The stack is read in pieces of so many bytes (`CHUNK` in `src/crash_event.h`).
pub const STACK_CHUNK: usize = 512;
/// At most so many of them (`MAX_CHUNKS`).
pub const MAX_STACK_CHUNKS: usize = 32;
