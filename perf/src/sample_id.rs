//! The `sample_id` at the end of every record of an event with `sample_id_all`.

use crate::Error;
use crate::cursor::Cursor;
use backtrail_pt::{Cpu, Nanos, Pid, Tid};

/// Bits of `perf_event_attr.sample_type` (`enum perf_event_sample_format`).
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const STREAM_ID: u64 = 1 << 9;
const IDENTIFIER: u64 = 1 << 16;

/// The fields of the `sample_id`: an event's `sample_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleType(pub u64);

impl SampleType {
    /// Returns whether the last 8 bytes hold the event's id, at a position that does not depend on
    /// other fields.
    #[must_use]
    pub fn has_identifier(self) -> bool {
        self.0 & IDENTIFIER != 0
    }

    /// Returns the size of the `sample_id`.
    #[must_use]
    pub fn size(self) -> usize {
        8 * (self.0 & (TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER)).count_ones() as usize
    }
}

/// The source and time of a record, as far as the event was configured to include them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// The process.
    pub pid: Option<Pid>,
    /// The thread.
    pub tid: Option<Tid>,
    /// The time on perf's clock.
    pub time: Option<Nanos>,
    /// The processor.
    pub cpu: Option<Cpu>,
    /// The id of the event.
    pub id: Option<u64>,
}

impl SampleId {
    /// Splits a record's `body` into its fields and the `sample_id` at its end. `what` and `offset`
    /// identify the record in errors.
    ///
    /// # Errors
    /// Fails if the record is too short.
    pub(crate) fn split<'a>(
        body: &'a [u8],
        sample_type: SampleType,
        what: &'static str,
        offset: u64,
    ) -> Result<(&'a [u8], Self), Error> {
        let before = body.len().checked_sub(sample_type.size());
        let (fields, trailer) = before
            .and_then(|before| body.split_at_checked(before))
            .ok_or(Error::Truncated { what, offset })?;
        let mut cursor = Cursor::new(trailer, what, offset);
        let mut id = Self::default();
        let has = |bit| sample_type.0 & bit != 0;
        if has(TID) {
            (id.pid, id.tid) = (Some(Pid(cursor.u32()?)), Some(Tid(cursor.u32()?)));
        }
        if has(TIME) {
            id.time = Some(Nanos(cursor.u64()?));
        }
        if has(ID) {
            id.id = Some(cursor.u64()?);
        }
        if has(STREAM_ID) {
            cursor.u64()?;
        }
        if has(CPU) {
            id.cpu = Some(Cpu(cursor.u32()?));
            cursor.u32()?;
        }
        if has(IDENTIFIER) {
            id.id = Some(cursor.u64()?);
        }
        Ok((fields, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_id_fields_are_in_kernel_order() {
        let words = [0xaau64, 2 << 32 | 1, 3, 4, 5];
        let body: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let sample_type = SampleType(TID | TIME | CPU | IDENTIFIER);
        let (fields, id) = SampleId::split(&body, sample_type, "record", 0).unwrap();
        assert_eq!(fields.len(), 8);
        let expected = SampleId {
            pid: Some(Pid(1)),
            tid: Some(Tid(2)),
            time: Some(Nanos(3)),
            cpu: Some(Cpu(4)),
            id: Some(5),
        };
        assert_eq!(id, expected);
        assert!(SampleId::split(&body[..31], sample_type, "record", 0).is_err());
    }
}
