//! Records of dynamic kernel code: `PERF_RECORD_KSYMBOL`, `PERF_RECORD_BPF_EVENT`.
//!
//! Source: `include/uapi/linux/perf_event.h` (`enum perf_event_type`, `enum
//! perf_record_ksymbol_type`).

use crate::Error;
use crate::cursor::Cursor;
use crate::record::RawRecord;
use crate::sample_id::{SampleId, SampleType};
use backtrail_pt::Avma;

const KSYMBOL: u32 = 17;
const BPF_EVENT: u32 = 18;
/// `PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER`.
const UNREGISTER: u16 = 1;
/// `PERF_BPF_EVENT_PROG_UNLOAD`.
const PROG_UNLOAD: u16 = 2;

/// Kernel code that was added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelCode {
    /// Code outside the kernel image.
    Symbol {
        /// The start address.
        start: Avma,
        /// The size in bytes.
        size: u32,
        /// The symbol name.
        name: String,
        /// Whether it was removed.
        removed: bool,
    },
    /// A BPF program.
    Bpf {
        /// The program id.
        id: u32,
        /// Whether it was removed.
        removed: bool,
    },
}

impl KernelCode {
    /// Parses a record, or returns `None` for records of other types.
    ///
    /// # Errors
    /// Fails if the record is too short for its type.
    pub fn parse(raw: &RawRecord<'_>, sample_type: SampleType) -> Result<Option<(Self, SampleId)>, Error> {
        let (what, is_symbol) = match raw.kind {
            KSYMBOL => ("PERF_RECORD_KSYMBOL", true),
            BPF_EVENT => ("PERF_RECORD_BPF_EVENT", false),
            _ => return Ok(None),
        };
        let (fields, id) = SampleId::split(raw.body, sample_type, what, raw.offset)?;
        let mut cursor = Cursor::new(fields, what, raw.offset);
        let code = if is_symbol {
            let (start, size) = (Avma(cursor.u64()?), cursor.u32()?);
            let (_kind, flags) = (cursor.u16()?, cursor.u16()?);
            let name = cursor.rest().split(|byte| *byte == 0).next().unwrap_or_default();
            Self::Symbol {
                start,
                size,
                name: String::from_utf8_lossy(name).into_owned(),
                removed: flags & UNREGISTER != 0,
            }
        } else {
            let (kind, _flags) = (cursor.u16()?, cursor.u16()?);
            Self::Bpf {
                id: cursor.u32()?,
                removed: kind == PROG_UNLOAD,
            }
        };
        Ok(Some((code, id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: u32, body: &[u8]) -> Result<Option<(KernelCode, SampleId)>, Error> {
        let raw = RawRecord {
            kind,
            misc: 0,
            body,
            offset: 0,
        };
        KernelCode::parse(&raw, SampleType(0))
    }

    #[test]
    fn kernel_code_records_are_parsed_and_truncated_ones_refused() {
        let mut body = 0xffff_ffff_c000_1000_u64.to_le_bytes().to_vec();
        body.extend([0x40, 0, 0, 0, 1, 0, 1, 0]);
        body.extend(b"bpf_prog_1\0\0\0\0\0\0");
        let (code, _) = parse(KSYMBOL, &body).unwrap().unwrap();
        let expected = KernelCode::Symbol {
            start: Avma(0xffff_ffff_c000_1000),
            size: 0x40,
            name: "bpf_prog_1".to_owned(),
            removed: true,
        };
        assert_eq!(code, expected);
        assert!(parse(KSYMBOL, &body[..15]).is_err());
        let (code, _) = parse(BPF_EVENT, &[1, 0, 0, 0, 9, 0, 0, 0]).unwrap().unwrap();
        assert_eq!(
            code,
            KernelCode::Bpf {
                id: 9,
                removed: false
            }
        );
        assert!(parse(BPF_EVENT, &[1, 0, 0, 0, 9, 0, 0]).is_err());
        assert!(matches!(parse(1, &[]), Ok(None)));
    }
}
