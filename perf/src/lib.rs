//! Linux's `perf_event`: the records that the kernel and `perf record` write, and the events that make them.
//!
//! [`record`] parses the records of the ring buffer, [`switch`] those of context switches in the
//! form every part of the project uses, [`data`] the `perf.data` file around them.
//! [`pmu`] and [`intel_pt`] read what sysfs says of a PMU, [`attr`] makes the attributes of events,
//! [`event`] opens them, [`ring`] reads what they write.
//! The formats' source: `include/uapi/linux/perf_event.h`, and in the kernel tree
//! `tools/perf/Documentation/perf.data-file-format.txt` and `tools/perf/util/intel-pt.c`.
//!
//! All input is taken as hostile: nothing is read outside the given bytes, and nothing is
//! allocated by a number that stands in them.
// Only those may that make system calls, or read memory that the kernel writes.
#![deny(unsafe_code)]

pub mod attr;
pub mod auxtrace;
#[allow(unsafe_code)]
pub mod capability;
pub mod cpu_list;
mod cursor;
pub mod data;
mod error;
#[allow(unsafe_code)]
pub mod event;
mod feature;
pub mod intel_pt;
pub mod kernel_code;
#[allow(unsafe_code)]
mod mapping;
pub mod pmu;
pub mod record;
#[allow(unsafe_code)]
pub mod ring;
pub mod sample_id;
pub mod switch;

pub use data::PerfData;
pub use error::Error;
pub use event::Event;
pub use mapping::Memory;
pub use pmu::Pmu;
pub use switch::ContextSwitch;
