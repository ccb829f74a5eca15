//! The software trace source: runs a program, or attaches to one, and writes its control flow as a
//! genuine Intel PT stream.
//!
//! Engine `translate` runs the program in a code cache whose stubs log the control flow (see
//! [`translate`]). Engine `step` single-steps every thread with ptrace: it is slow, and serves as
//! the oracle of the first.
//!
//! Both write the packets that hardware would write for user code. At a fatal signal they also save
//! registers, memory and modules. The result is a bundle.
//!
//! From the bottom up: [`ptrace`], [`spawn`] and the crate `backtrail-process` make system calls.
//! [`code`] reads instructions. [`packet_stream`] turns steps into packets, and [`ring`] stores
//! them. [`stepped`] and [`translate`] handle the stops of one [`thread`]. [`session`] traces all
//! threads. [`core_dump`] saves memory, and [`save`] writes the bundle. A [`crash_sink`] receives
//! one bundle for each crash instead.
#![deny(unsafe_code)]
// The links above are for readers of the source.
#![allow(rustdoc::private_intra_doc_links)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the recorder supports only x86-64 Linux");

mod attributes;
mod capabilities;
mod clock;
mod clone_flags;
mod code;
mod core_dump;
mod crash_sink;
mod descriptors;
mod destination;
mod error;
mod options;
mod outcome;
mod packet_stream;
mod program_filter;
mod ptrace;
mod record;
mod recorded;
mod remote;
mod ring;
mod save;
mod segment_log;
mod session;
mod shared_ranges;
mod signal_state;
mod spawn;
mod standard_error;
mod stepped;
mod stored_images;
mod syscall_filter;
mod thread;
mod translate;
mod unique_names;
mod values;
mod waker;
mod xstate;

pub use capabilities::{Capabilities, capabilities};
pub use crash_sink::{CrashDraft, CrashSink, EndedProcess, Memory, SavedCrash};
pub use error::{Error, Result};
pub use options::{Engine, Output, Pin, Progress, RecordOptions, Target, TranslationDirectory, ValueOptions};
pub use outcome::{Ending, Golden, Outcome, ProcessCounts};
pub use program_filter::ProgramFilter;
pub use record::record;

/// The size of an x86-64 page in bytes.
pub(crate) const PAGE: u64 = 4096;
