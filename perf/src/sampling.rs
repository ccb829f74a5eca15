//! Attributes of events that take samples with stacks.
//!
//! Source: `include/uapi/linux/perf_event.h` (`struct perf_event_attr`).

use crate::attr::{Attr, SIZE};
use crate::sample::SampleLayout;
use crate::sample_id::SampleType;
use perf_event_open_sys::bindings as sys;
use std::ffi::CStr;
use std::sync::Arc;

/// The registers of [`UserState::registers`](crate::sample::UserState::registers) in their order:
/// frame pointer, stack pointer, instruction pointer (`arch/x86/include/uapi/asm/perf_regs.h`).
pub const USER_REGISTERS: [u64; 3] = [6, 7, 8];

/// An event that can be sampled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// Nanoseconds of processor time, by a timer (`PERF_COUNT_SW_CPU_CLOCK`).
    CpuClock,
    /// Page faults (`PERF_COUNT_SW_PAGE_FAULTS`).
    PageFaults,
    /// Switches away from a thread (`PERF_COUNT_SW_CONTEXT_SWITCHES`).
    ContextSwitches,
    /// Cycles of the processor (`PERF_COUNT_HW_CPU_CYCLES`).
    Cycles,
    /// Instructions (`PERF_COUNT_HW_INSTRUCTIONS`).
    Instructions,
    /// Cache misses (`PERF_COUNT_HW_CACHE_MISSES`).
    CacheMisses,
    /// A tracepoint of the kernel, by its [id](crate::tracefs::tracepoint_id).
    Tracepoint(u64),
    /// Executions of an instruction of a file.
    Uprobe {
        /// The type of the kernel's PMU `uprobe`.
        pmu: u32,
        /// The file.
        path: Arc<CStr>,
        /// The offset of the instruction in the file.
        offset: u64,
    },
}

impl Counter {
    fn type_and_config(&self) -> (u32, u64) {
        let software = |config: u32| (sys::PERF_TYPE_SOFTWARE, config.into());
        let hardware = |config: u32| (sys::PERF_TYPE_HARDWARE, config.into());
        match self {
            Self::CpuClock => software(sys::PERF_COUNT_SW_CPU_CLOCK),
            Self::PageFaults => software(sys::PERF_COUNT_SW_PAGE_FAULTS),
            Self::ContextSwitches => software(sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
            Self::Cycles => hardware(sys::PERF_COUNT_HW_CPU_CYCLES),
            Self::Instructions => hardware(sys::PERF_COUNT_HW_INSTRUCTIONS),
            Self::CacheMisses => hardware(sys::PERF_COUNT_HW_CACHE_MISSES),
            Self::Tracepoint(id) => (sys::PERF_TYPE_TRACEPOINT, *id),
            Self::Uprobe { pmu, .. } => (*pmu, 0),
        }
    }
}

/// The samples that an event takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Samples per second of the event's activity. The kernel adapts the period.
    Frequency(u64),
    /// A sample each time that the event has counted so much.
    Period(u64),
}

/// The settings of a sampled event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The event.
    pub counter: Counter,
    /// The rate of samples.
    pub rate: Rate,
    /// The most bytes of a program's stack in a sample, a multiple of 8.
    pub stack_bytes: u32,
    /// Whether samples in the kernel are taken, with the kernel's stack.
    pub kernel: bool,
    /// Whether new threads and children are sampled, too.
    pub inherit: bool,
    /// Whether the event is enabled by the first `execve`.
    pub enable_on_exec: bool,
    /// Whether the event records mappings, names, starts and ends of threads.
    pub sideband: bool,
    /// Whether the event records context switches.
    pub switches: bool,
    /// Whether samples have the payload of a tracepoint.
    pub payload: bool,
    /// Whether samples have the last taken branches of the program (LBR).
    pub branches: bool,
    /// The number of unread bytes that wakes the reader.
    pub watermark: u32,
}

impl Sampling {
    /// Returns the layout of the samples.
    #[must_use]
    pub fn layout(&self) -> SampleLayout {
        SampleLayout {
            sample_type: self.sample_type().0,
            read_format: sys::PERF_FORMAT_ID.into(),
            branch_sample_type: if self.branches { TAKEN_USER_BRANCHES } else { 0 },
            user_registers: USER_REGISTERS.iter().fold(0, |mask, bit| mask | 1 << bit),
        }
    }

    /// Returns the fields that end every other record.
    #[must_use]
    pub fn sample_type(&self) -> SampleType {
        let bit = |is_set: bool, bit: u32| if is_set { u64::from(bit) } else { 0 };
        let payload = bit(self.payload, sys::PERF_SAMPLE_RAW);
        let branches = bit(self.branches, sys::PERF_SAMPLE_BRANCH_STACK);
        SampleType(SAMPLE_TYPE | payload | branches)
    }
}

/// The fields that all samples have.
const SAMPLE_TYPE: u64 = sys::PERF_SAMPLE_IDENTIFIER as u64
    | sys::PERF_SAMPLE_IP as u64
    | sys::PERF_SAMPLE_TID as u64
    | sys::PERF_SAMPLE_TIME as u64
    | sys::PERF_SAMPLE_CPU as u64
    | sys::PERF_SAMPLE_PERIOD as u64
    | sys::PERF_SAMPLE_CALLCHAIN as u64
    | sys::PERF_SAMPLE_REGS_USER as u64
    | sys::PERF_SAMPLE_STACK_USER as u64;

/// The branches of a sample: all that a program has taken.
const TAKEN_USER_BRANCHES: u64 = sys::PERF_SAMPLE_BRANCH_USER as u64 | sys::PERF_SAMPLE_BRANCH_ANY as u64;

/// The layout of the records that eBPF programs write by [`Attr::program_output`].
pub const PROGRAM_OUTPUT: SampleLayout = SampleLayout {
    sample_type: sys::PERF_SAMPLE_IDENTIFIER as u64
        | sys::PERF_SAMPLE_TID as u64
        | sys::PERF_SAMPLE_TIME as u64
        | sys::PERF_SAMPLE_CPU as u64
        | sys::PERF_SAMPLE_RAW as u64,
    read_format: sys::PERF_FORMAT_ID as u64,
    branch_sample_type: 0,
    user_registers: 0,
};

impl Attr {
    /// Returns the attributes of an enabled event by which eBPF programs write records
    /// (`PERF_COUNT_SW_BPF_OUTPUT`). Its clock is that of [`Attr::sampling`].
    #[must_use]
    pub fn program_output() -> Self {
        let mut attr = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            size: SIZE as u32,
            config: sys::PERF_COUNT_SW_BPF_OUTPUT.into(),
            sample_type: PROGRAM_OUTPUT.sample_type,
            read_format: PROGRAM_OUTPUT.read_format,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.__bindgen_anon_1 = sys::perf_event_attr__bindgen_ty_1 { sample_period: 1 };
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        Self::from_raw(attr)
    }

    /// Returns the attributes of a disabled event that takes samples with the kernel's call chain,
    /// and with the registers and the stack of the program. Its clock is `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn sampling(sampling: &Sampling) -> Self {
        let (kind, config) = sampling.counter.type_and_config();
        let layout = sampling.layout();
        let mut attr = sys::perf_event_attr {
            type_: kind,
            size: SIZE as u32,
            config,
            sample_type: layout.sample_type,
            read_format: layout.read_format,
            branch_sample_type: layout.branch_sample_type,
            sample_regs_user: layout.user_registers,
            sample_stack_user: sampling.stack_bytes,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.__bindgen_anon_1 = match sampling.rate {
            Rate::Frequency(sample_freq) => {
                attr.set_freq(1);
                sys::perf_event_attr__bindgen_ty_1 { sample_freq }
            }
            Rate::Period(sample_period) => sys::perf_event_attr__bindgen_ty_1 { sample_period },
        };
        attr.__bindgen_anon_2 = sys::perf_event_attr__bindgen_ty_2 {
            wakeup_watermark: sampling.watermark,
        };
        attr.set_watermark(1);
        attr.set_disabled(1);
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        attr.set_exclude_hv(1);
        attr.set_exclude_guest(1);
        attr.set_exclude_idle(1);
        attr.set_exclude_kernel((!sampling.kernel).into());
        // The kernel's call chains of programs need frame pointers. The stack's bytes do not.
        attr.set_exclude_callchain_user(1);
        attr.set_inherit(sampling.inherit.into());
        attr.set_enable_on_exec(sampling.enable_on_exec.into());
        let sideband = sampling.sideband.into();
        attr.set_mmap(sideband);
        attr.set_mmap2(sideband);
        attr.set_build_id(sideband);
        attr.set_comm(sideband);
        attr.set_comm_exec(sideband);
        attr.set_task(sideband);
        attr.set_context_switch(sampling.switches.into());
        match &sampling.counter {
            Counter::Uprobe { path, offset, .. } => {
                attr.__bindgen_anon_4 = sys::perf_event_attr__bindgen_ty_4 {
                    probe_offset: *offset,
                };
                Self::from_raw(attr).with_path(Arc::clone(path))
            }
            _ => Self::from_raw(attr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_those_that_a_program_took() {
        let sampling = |branches| Sampling {
            counter: Counter::Cycles,
            rate: Rate::Frequency(99),
            stack_bytes: 8192,
            kernel: true,
            inherit: false,
            enable_on_exec: false,
            sideband: false,
            switches: false,
            payload: false,
            branches,
            watermark: 4096,
        };
        let [with, without] = [true, false].map(|branches| sampling(branches).layout());
        // PERF_SAMPLE_BRANCH_STACK; PERF_SAMPLE_BRANCH_USER and PERF_SAMPLE_BRANCH_ANY.
        assert_eq!(with.sample_type ^ without.sample_type, 1 << 11);
        assert_eq!(
            (with.branch_sample_type, without.branch_sample_type),
            (1 | 1 << 3, 0)
        );
    }
}
