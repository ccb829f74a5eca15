//! The machine and files that a `perf.data` file describes.

use crate::cursor::Cursor;
use crate::data::PerfData;
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{BuildId, CpuModel};

/// `HEADER_*` in `tools/perf/util/header.h`.
const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const CPUID: u32 = 9;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;

impl PerfData<'_> {
    /// Returns the processor, from `VENDOR,FAMILY,MODEL,STEPPING`.
    #[must_use]
    pub fn cpu_model(&self) -> Option<CpuModel> {
        let text = self.string(CPUID)?;
        let mut parts = text.split(',');
        let vendor = if parts.next()? == "GenuineIntel" {
            Vendor::Intel
        } else {
            Vendor::Other
        };
        let (family, model) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let stepping = parts
            .next()?
            .trim()
            .parse()
            .ok()
            .filter(|stepping| *stepping < 16)?;
        Some(CpuModel {
            vendor,
            family,
            model,
            stepping,
        })
    }

    /// Returns the host name.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        self.string(HOSTNAME)
    }

    /// Returns the kernel release.
    #[must_use]
    pub fn kernel(&self) -> Option<String> {
        self.string(OSRELEASE)
    }

    /// Returns the command line of perf.
    #[must_use]
    pub fn command_line(&self) -> Vec<String> {
        let mut cursor = Cursor::new(self.feature(CMDLINE).unwrap_or_default(), "command line", 0);
        let count = cursor.u32().unwrap_or(0);
        (0..count).map_while(|_| string(&mut cursor)).collect()
    }

    /// Returns the build ids of the recorded files, by path.
    #[must_use]
    pub fn build_ids(&self) -> Vec<(String, BuildId)> {
        self.build_id_parts().flat_map(build_ids_in).collect()
    }

    /// Returns the names of the events as the user wrote them, in the order of
    /// [`events`](PerfData::events). Empty: the file does not have them.
    #[must_use]
    pub fn event_names(&self) -> Vec<String> {
        let Some(bytes) = self.feature(EVENT_DESC) else {
            return Vec::new();
        };
        let mut cursor = Cursor::new(bytes, "event descriptions", 0);
        let (Ok(count), Ok(attr_size)) = (cursor.u32(), cursor.u32()) else {
            return Vec::new();
        };
        let mut name = || {
            cursor.bytes(attr_size as usize).ok()?;
            let ids = cursor.u32().ok()?;
            let name = string(&mut cursor)?;
            cursor.bytes(8 * ids as usize).ok()?;
            Some(name)
        };
        (0..count).map_while(|_| name()).collect()
    }

    fn string(&self, feature: u32) -> Option<String> {
        string(&mut Cursor::new(self.feature(feature)?, "feature", 0))
    }
}

/// Reads a string with its length, padded with NULs (`do_write_string`).
fn string(cursor: &mut Cursor<'_>) -> Option<String> {
    let len = usize::try_from(cursor.u32().ok()?).ok()?;
    let bytes = cursor.bytes(len).ok()?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Returns the build ids in records of `struct perf_record_header_build_id`.
fn build_ids_in(mut rest: &[u8]) -> Vec<(String, BuildId)> {
    /// The length follows the id (`PERF_RECORD_MISC_BUILD_ID_SIZE`).
    const HAS_SIZE: u16 = 1 << 15;
    const HEAD: usize = 8 + 4 + 24;
    let mut found = Vec::new();
    while let Some(misc) = rest
        .get(4..6)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u16::from_le_bytes)
    {
        let size = rest
            .get(6..8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u16::from_le_bytes);
        let Some((entry, tail)) = size.and_then(|size| rest.split_at_checked(size.into())) else {
            break;
        };
        let (Some(id), Some(name)) = (entry.get(12..32), entry.get(HEAD..)) else {
            break;
        };
        rest = tail;
        let len = if misc & HAS_SIZE != 0 {
            entry.get(32).map_or(20, |len| usize::from(*len))
        } else {
            20
        };
        let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(id) = id.get(..len).and_then(BuildId::new) {
            found.push((String::from_utf8_lossy(path).into_owned(), id));
        }
    }
    found
}
