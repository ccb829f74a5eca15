//! Takes profiles of running programs.
//!
//! [`record`] samples by perf events. [`record_with_requests`] takes further recordings at the same
//! time, which share the state of the processes. A [`sampler`] reads samples and mappings from the
//! rings of all processors. An eBPF program walks stacks by compact tables ([`unwind_table`]) when
//! a sample is taken. Where it cannot, the kernel copies stacks, and [`unwind`] walks them. A file
//! of segments ([`segment`]) gets a block each second. No debug information is read while
//! recording: a frame is a build id and a file offset, and names come later. The exceptions are the
//! kernel's functions, the vDSO and generated code, whose names another machine does not have.
//! Programs list the last in perf maps ([`perf_map`]) or jitdumps ([`jitdump`]).

mod address;
mod budget;
mod capture;
mod cgroup;
mod clock;
mod elf_sections;
mod error;
mod event;
mod generated_code;
mod heap;
mod host;
pub mod jitdump;
mod kernel;
mod kernel_walker;
mod module_file;
mod module_key;
mod modules;
mod off_cpu;
mod open_events;
mod options;
pub mod perf_map;
mod priority;
mod program;
pub mod python;
mod reader;
mod record_queue;
mod recording;
mod requested;
mod sampled_time;
pub mod sampler;
pub mod segment;
mod segment_ids;
pub mod spool;
mod stack_walker;
mod summary;
mod support;
mod tasks;
mod thinning;
mod thread_context;
pub mod unwind;
pub mod unwind_table;
mod vdso;
mod walked_sample;

pub use capture::{record, record_with_requests};
pub use error::{Error, Result};
pub use event::{SampledEvent, Tracepoint, Uprobe, WakeupTracepoint};
pub use kernel::KernelFunctions;
pub use options::{RecordOptions, RecordingOutput, SpoolOptions, StackMethod, Target};
pub use program::ProgramEnd;
pub use requested::{RequestOptions, Requester, Requests, requests};
pub use summary::{Progress, Summary};
pub use support::{StackSupport, stack_support};
pub use vdso::Vdso;
pub use walked_sample::WalkedSample;
