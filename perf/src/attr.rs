//! Event attributes, as the exact bytes that `perf_event_open(2)` takes.
//!
//! Source: `include/uapi/linux/perf_event.h` (`struct perf_event_attr`). The settings are those
//! that perf uses for Intel PT (`tools/perf/arch/x86/util/intel-pt.c`, `tools/perf/util/evsel.c`).

use crate::intel_pt::{IntelPt, PtSetting};
use crate::sample_id::SampleType;
use perf_event_open_sys::bindings as sys;
use std::ffi::CStr;
use std::sync::Arc;

/// The fields at the end of every record of our events: thread, time, processor, and last the event
/// id.
pub const SAMPLE_TYPE: SampleType = SampleType(
    sys::PERF_SAMPLE_TID as u64
        | sys::PERF_SAMPLE_TIME as u64
        | sys::PERF_SAMPLE_CPU as u64
        | sys::PERF_SAMPLE_IDENTIFIER as u64,
);

/// The size of `struct perf_event_attr`. Older kernels with a smaller struct accept it if the rest
/// is 0.
pub const SIZE: usize = size_of::<sys::perf_event_attr>();

/// The attributes of an event.
#[derive(Clone, Debug)]
pub struct Attr {
    pub(crate) raw: sys::perf_event_attr,
    /// The string that `raw.uprobe_path` points to.
    path: Option<Arc<CStr>>,
}

/// The effect of an event on the AUX trace of its group leader, at each overflow (Linux 6.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuxAction {
    /// Pauses the trace in the kernel, without delay.
    Pause,
    /// Resumes the trace.
    Resume,
}

impl Attr {
    /// Returns the attributes of a disabled event whose records include thread, time and processor.
    /// Its clock is perf's own, the only one with a conversion from trace timestamps.
    fn new(kind: u32) -> Self {
        let mut attr = sys::perf_event_attr {
            type_: kind,
            size: SIZE as u32,
            sample_type: SAMPLE_TYPE.0,
            read_format: sys::PERF_FORMAT_ID.into(),
            ..Default::default()
        };
        attr.set_disabled(1);
        attr.set_exclude_hv(1);
        attr.set_sample_id_all(1);
        Self::from_raw(attr)
    }

    pub(crate) fn from_raw(raw: sys::perf_event_attr) -> Self {
        Self { raw, path: None }
    }

    /// Makes the attributes those of an instruction of a file.
    pub(crate) fn with_path(mut self, path: Arc<CStr>) -> Self {
        self.raw.__bindgen_anon_3 = sys::perf_event_attr__bindgen_ty_3 {
            uprobe_path: path.as_ptr() as u64,
        };
        self.path = Some(path);
        self
    }

    fn period(mut self, period: u64) -> Self {
        self.raw.__bindgen_anon_1 = sys::perf_event_attr__bindgen_ty_1 {
            sample_period: period,
        };
        self
    }

    /// Returns the attributes of Intel PT for user code, and optionally for the kernel.
    #[must_use]
    pub fn intel_pt(pt: &IntelPt, setting: &PtSetting, kernel: bool) -> Self {
        let mut attr = Self::new(pt.pmu.kind).period(1);
        let [config, config1, config2, config3, config4] = setting.config.0;
        attr.raw.config = config;
        attr.raw.__bindgen_anon_3 = sys::perf_event_attr__bindgen_ty_3 { config1 };
        attr.raw.__bindgen_anon_4 = sys::perf_event_attr__bindgen_ty_4 { config2 };
        attr.raw.config3 = config3;
        attr.raw.config4 = config4;
        attr.raw.set_exclude_kernel((!kernel).into());
        attr
    }

    /// Makes threads and children of the target inherit the event.
    #[must_use]
    pub fn inherited(mut self) -> Self {
        self.raw.set_inherit(1);
        self
    }

    /// Returns the attributes of the sideband: mappings with build ids, names, starts and ends of
    /// threads, context switches, and dynamic kernel code. It counts nothing
    /// (`PERF_COUNT_SW_DUMMY`).
    ///
    /// The reader wakes up when `watermark` bytes are available.
    #[must_use]
    pub fn sideband(watermark: u32) -> Self {
        let mut attr = Self::new(sys::PERF_TYPE_SOFTWARE).period(1);
        attr.raw.config = sys::PERF_COUNT_SW_DUMMY.into();
        // Without this, only privileged users get records of kernel code. Nothing is sampled
        // anyway.
        attr.raw.set_exclude_kernel(1);
        attr.raw.set_mmap(1);
        attr.raw.set_mmap2(1);
        attr.raw.set_build_id(1);
        attr.raw.set_comm(1);
        attr.raw.set_comm_exec(1);
        attr.raw.set_task(1);
        attr.raw.set_context_switch(1);
        attr.raw.set_ksymbol(1);
        attr.raw.set_bpf_event(1);
        attr.raw.set_watermark(1);
        attr.raw.__bindgen_anon_2 = sys::perf_event_attr__bindgen_ty_2 {
            wakeup_watermark: watermark,
        };
        attr
    }

    /// Removes settings that older kernels do not support: build ids came with 5.12, `ksymbol` and
    /// `bpf_event` with 5.1.
    #[must_use]
    pub fn without_newer(mut self, level: SidebandLevel) -> Self {
        self.raw.set_build_id(0);
        if level == SidebandLevel::Linux4 {
            self.raw.set_ksymbol(0);
            self.raw.set_bpf_event(0);
        }
        self
    }

    /// Returns the attributes of a tracepoint by its id (`events/GROUP/NAME/id` of tracefs). It
    /// fires at every occurrence, and acts on the trace of its group leader.
    #[must_use]
    pub fn tracepoint(id: u64, action: Option<AuxAction>) -> Self {
        let mut attr = Self::new(sys::PERF_TYPE_TRACEPOINT).period(1);
        attr.raw.config = id;
        attr.with_action(action)
    }

    /// Returns the attributes of a timer that fires every `period` nanoseconds on its processor and
    /// acts on the trace of its group leader. It lets user space end a pause.
    #[must_use]
    pub fn timer(period: u64, action: AuxAction) -> Self {
        let mut attr = Self::new(sys::PERF_TYPE_SOFTWARE).period(period);
        attr.raw.config = sys::PERF_COUNT_SW_CPU_CLOCK.into();
        attr.with_action(Some(action))
    }

    fn with_action(mut self, action: Option<AuxAction>) -> Self {
        let mut bits = sys::perf_event_attr__bindgen_ty_5__bindgen_ty_1::default();
        bits.set_aux_pause((action == Some(AuxAction::Pause)).into());
        bits.set_aux_resume((action == Some(AuxAction::Resume)).into());
        self.raw.__bindgen_anon_5 = sys::perf_event_attr__bindgen_ty_5 {
            __bindgen_anon_1: bits,
        };
        self
    }

    /// Returns the bytes for the kernel.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        // SAFETY: the struct is plain old data of exactly this size without padding. The sizes of
        // its fields add up to it, and the bindings assert the offset of every field.
        unsafe { std::mem::transmute_copy(&self.raw) }
    }
}

/// The level of sideband support in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidebandLevel {
    /// Everything except build ids: before 5.12.
    Linux5,
    /// Neither build ids nor dynamic kernel code: before 5.1.
    Linux4,
}
