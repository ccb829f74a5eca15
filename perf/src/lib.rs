//! Linux `perf_event`: records of the kernel and of `perf record`, and the events that produce
//! them.
//!
//! [`record`] parses the records of the ring buffer, [`switch`] those of context switches, and
//! [`data`] the `perf.data` file around them. [`pmu`] and [`intel_pt`] read PMU descriptions in
//! sysfs. [`attr`] builds event attributes, [`event`] opens events, and [`ring`] reads their
//! output. The modules that make system calls exist on Linux only.
//!
//! Source of the formats: `include/uapi/linux/perf_event.h`, and in the kernel tree
//! `tools/perf/Documentation/perf.data-file-format.txt` and `tools/perf/util/intel-pt.c`.
//!
//! All input is treated as hostile: nothing outside the given bytes is read, and no allocation is
//! sized by an unchecked field.
// Only the modules below that allow it may make system calls or read memory that the kernel writes.
#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod attr;
pub mod auxtrace;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub mod capability;
pub mod cpu_list;
mod cursor;
pub mod data;
mod error;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub mod event;
mod feature;
pub mod id_index;
pub mod intel_pt;
pub mod kernel_code;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod mapping;
pub mod pmu;
pub mod record;
mod refusal;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub mod ring;
pub mod sample;
pub mod sample_id;
#[cfg(target_os = "linux")]
pub mod sampling;
pub mod switch;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub mod tracefs;

pub use data::PerfData;
pub use error::Error;
#[cfg(target_os = "linux")]
pub use event::Event;
#[cfg(target_os = "linux")]
pub use mapping::LockedMemory;
pub use pmu::Pmu;
pub use switch::ContextSwitch;
