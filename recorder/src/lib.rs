//! The software trace source: it runs a program, or attaches to one, and writes what its control flow
//! was as a genuine Intel PT stream.
//!
//! Engine `translate`: the program runs in a code cache whose stubs log where control goes; see
//! [`translate`]. Engine `step`: every thread is single-stepped by ptrace. Slow, and the oracle of the
//! other. Both write the packets that tracing hardware would have written (user code only), and at a
//! fatal signal save registers, memory and modules too; the whole becomes a bundle.
//!
//! From the bottom up: [`ptrace`] and [`spawn`] ask the kernel, and so does the crate `backtrail-process`; [`code`] reads
//! instructions; [`stream`] turns steps into packets, which [`ring`] keeps; [`stepped`] and [`translate`]
//! know what a stop means for one [`thread`]; [`session`] minds all threads; [`core_dump`]
//! keeps what the process had in memory; [`save`] writes the bundle; [`crash_sink`] gets one for each crash instead.
#![deny(unsafe_code)]
// The links above are for those who read the source.
#![allow(rustdoc::private_intra_doc_links)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the recorder traces x86-64 Linux programs, on such a machine");

mod capabilities;
mod clock;
mod clone_flags;
mod code;
mod core_dump;
mod crash_sink;
mod descriptors;
mod error;
mod names;
mod options;
mod outcome;
mod ptrace;
mod record;
mod recorded;
mod ring;
mod save;
mod session;
mod spawn;
mod stepped;
mod stream;
mod thread;
mod translate;
mod waker;

pub use capabilities::{Capabilities, capabilities};
pub use crash_sink::{CrashDraft, CrashSink, Memory, SavedCrash};
pub use error::{Error, Result};
pub use options::{Engine, Output, Pin, Progress, RecordOptions, Target};
pub use outcome::{Ending, Golden, Outcome};
pub use record::record;

/// Bytes in a page of x86-64.
pub(crate) const PAGE: u64 = 4096;
