//! Records of Linux's `perf_event`: what the kernel and `perf record` write, read from bytes.
//!
//! [`record`] parses the records of the ring buffer, [`switch`] those of context switches in the
//! form every part of the project uses, [`data`] the `perf.data` file around them.
//! The formats' source: `include/uapi/linux/perf_event.h`, and in the kernel tree
//! `tools/perf/Documentation/perf.data-file-format.txt` and `tools/perf/util/intel-pt.c`.
//!
//! All input is taken as hostile: nothing is read outside the given bytes, and nothing is
//! allocated by a number that stands in them.
// Only `capability` may: it makes the system calls it asks about.
#![deny(unsafe_code)]

pub mod auxtrace;
#[allow(unsafe_code)]
pub mod capability;
mod cursor;
pub mod data;
mod error;
mod feature;
pub mod record;
pub mod sample_id;
pub mod switch;

pub use data::PerfData;
pub use error::Error;
pub use switch::ContextSwitch;
