//! The records about AUX data that `perf record` writes itself.
//!
//! Source: `tools/perf/lib/include/perf/event.h` (`struct perf_record_auxtrace`),
//! `tools/perf/util/intel-pt.h` (the order of the private words).

use crate::Error;
use crate::cursor::Cursor;
use crate::record::RawRecord;
use backtrail_pt::{Cpu, Tid, TscConversion};

/// `PERF_RECORD_AUXTRACE_INFO`.
pub(crate) const AUXTRACE_INFO: u32 = 70;
/// `PERF_RECORD_AUXTRACE`, which is followed by its data.
pub(crate) const AUXTRACE: u32 = 71;
/// `PERF_RECORD_TIME_CONV`.
pub(crate) const TIME_CONV: u32 = 79;
/// `PERF_AUXTRACE_INTEL_PT`.
const INTEL_PT: u32 = 1;

/// The content of `PERF_RECORD_AUXTRACE_INFO` for Intel PT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntelPtInfo {
    /// The PMU's type number, `perf_event_attr.type` of the trace event.
    pub pmu_type: u32,
    /// The conversion from TSC to perf's clock, if the kernel has one.
    pub tsc: Option<TscConversion>,
    /// Whether buffers are snapshots, which overlap. Only the last one is complete.
    pub snapshot: bool,
    /// Whether context switches were recorded for the traced threads alone, with the events of
    /// those threads. perf does not do so when it traces whole processors.
    pub switches_of_threads: bool,
    /// Whether there is a buffer for each processor instead of each thread.
    pub per_cpu: bool,
    /// The bit of `perf_event_attr.config` that enables MTC packets.
    pub mtc_bit: u64,
    /// The bits of `perf_event_attr.config` that hold `MTCFreq`.
    pub mtc_freq_bits: u64,
    /// CPUID leaf 15h EBX: numerator of TSC / crystal clock.
    pub tsc_ctc_numerator: u32,
    /// CPUID leaf 15h EAX: denominator of TSC / crystal clock.
    pub tsc_ctc_denominator: u32,
    /// The maximum non-turbo ratio.
    pub max_nonturbo_ratio: u8,
    /// The address filter as the user wrote it, or an empty string.
    pub filter: String,
}

/// AUX data in a file.
#[derive(Clone, Copy, Debug)]
pub struct AuxData<'a> {
    /// The start position in the stream of the buffer.
    pub offset: u64,
    /// The index of the buffer.
    pub index: u32,
    /// The thread, if there is a buffer for each thread.
    pub tid: Tid,
    /// The processor, if there is a buffer for each processor.
    pub cpu: Option<Cpu>,
    /// The packets.
    pub bytes: &'a [u8],
}

impl IntelPtInfo {
    /// Parses the record.
    ///
    /// # Errors
    /// Fails if it is truncated, or describes another kind of trace.
    pub(crate) fn parse(raw: &RawRecord<'_>) -> Result<Self, Error> {
        let mut cursor = Cursor::new(raw.body, "PERF_RECORD_AUXTRACE_INFO", raw.offset);
        let kind = cursor.u32()?;
        if kind != INTEL_PT {
            return Err(Error::Unsupported(format!(
                "AUX data of type {kind} is not supported, only Intel PT"
            )));
        }
        cursor.u32()?;
        let pmu_type = cursor.u64()? as u32;
        let (shift, mult, zero) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let has_zero = cursor.u64()? != 0;
        let (_tsc_bit, _noretcomp_bit, have_switch) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let (snapshot, per_cpu) = (cursor.u64()? != 0, cursor.u64()? != 0);
        let mut info = Self {
            pmu_type,
            snapshot,
            switches_of_threads: have_switch == 2,
            per_cpu,
            ..Self::default()
        };
        if has_zero {
            info.tsc = conversion(&cursor, shift, mult, zero)?;
        }
        // Older versions of perf end the record here, or after the ratios.
        if cursor.rest().len() >= 40 {
            (info.mtc_bit, info.mtc_freq_bits) = (cursor.u64()?, cursor.u64()?);
            let (numerator, denominator, _cyc_bit) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
            info.tsc_ctc_numerator = numerator as u32;
            info.tsc_ctc_denominator = denominator as u32;
        }
        if cursor.rest().len() >= 16 {
            info.max_nonturbo_ratio = cursor.u64()? as u8;
            let len = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
            let text = cursor
                .rest()
                .get(..len.min(cursor.rest().len()))
                .unwrap_or_default();
            info.filter =
                String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into();
        }
        Ok(info)
    }
}

/// Parses `PERF_RECORD_TIME_CONV`.
pub(crate) fn parse_time_conv(raw: &RawRecord<'_>) -> Result<Option<TscConversion>, Error> {
    let mut cursor = Cursor::new(raw.body, "PERF_RECORD_TIME_CONV", raw.offset);
    let (shift, mult, zero) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    conversion(&cursor, shift, mult, zero)
}

/// Builds a conversion, or returns `None` for a multiplier of 0, which means that there is none.
fn conversion(cursor: &Cursor<'_>, shift: u64, mult: u64, zero: u64) -> Result<Option<TscConversion>, Error> {
    if mult == 0 {
        return Ok(None);
    }
    let numbers = (u16::try_from(shift), u32::try_from(mult));
    let (Ok(shift), Ok(mult)) = numbers else {
        return Err(cursor.invalid("its time conversion is out of range"));
    };
    let conversion = TscConversion::new(shift, mult, zero);
    conversion
        .map(Some)
        .ok_or_else(|| cursor.invalid("its time conversion is out of range"))
}

/// Parses the header of AUX data, and returns it with the size of the data after the record.
pub(crate) fn parse_auxtrace(raw: &RawRecord<'_>) -> Result<(AuxData<'static>, u64), Error> {
    let mut cursor = Cursor::new(raw.body, "PERF_RECORD_AUXTRACE", raw.offset);
    let (size, offset, _reference) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    let (index, tid, cpu) = (cursor.u32()?, Tid(cursor.u32()?), cursor.u32()?);
    let cpu = (cpu != u32::MAX).then_some(Cpu(cpu));
    Ok((
        AuxData {
            offset,
            index,
            tid,
            cpu,
            bytes: &[],
        },
        size,
    ))
}
