//! The `perf.data` file: header, events, features, records.
//!
//! Read in place from its bytes. The crate `linux-perf-data` allocates by the section sizes that stand in a
//! file, which is no way to read files that come from elsewhere; it leaves the AUX records
//! unread, too.

use crate::Error;
use crate::auxtrace::{self, AuxData, IntelPtInfo};
use crate::cursor::Cursor;
use crate::record::{RawRecord, Record};
use crate::sample_id::SampleType;
use backtrail_pt::TscConversion;
use std::collections::HashMap;

/// `PERF_RECORD_COMPRESSED` and `PERF_RECORD_COMPRESSED2`.
const COMPRESSED: [u32; 2] = [81, 83];
/// Types from here on are `perf record`'s own (`PERF_RECORD_USER_TYPE_START`).
const USER_TYPE_START: u32 = 64;
/// `sizeof(struct perf_file_header)`; a pipe's header has 16 bytes.
const HEADER_SIZE: u64 = 104;
/// `perf_event_attr` up to its flags, the least there is (`PERF_ATTR_SIZE_VER0`).
const MIN_ATTR_SIZE: u64 = 64;
/// No file describes more events.
const MAX_EVENTS: u64 = 1 << 16;

/// A part of the file.
#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

/// An event that was recorded (`perf_event_attr`).
#[derive(Clone, Copy, Debug)]
pub struct EventAttr {
    /// The PMU.
    pub kind: u32,
    /// What of it.
    pub config: u64,
    /// What trails its records, if anything.
    pub sample_type: SampleType,
    /// The kernel was left out.
    pub exclude_kernel: bool,
}

/// A `perf.data` file.
#[derive(Debug)]
pub struct PerfData<'a> {
    bytes: &'a [u8],
    data: Section,
    /// The recorded events.
    pub events: Vec<EventAttr>,
    ids: HashMap<u64, usize>,
    features: HashMap<u32, Section>,
}

/// An item of the file's data.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record of the kernel.
    Record(Record),
    /// How Intel PT was recorded.
    Info(IntelPtInfo),
    /// A piece of AUX data.
    Aux(AuxData<'a>),
    /// The time conversion.
    Time(TscConversion),
}

impl<'a> PerfData<'a> {
    /// Reads header, events and the table of features.
    ///
    /// # Errors
    /// When the file is cut short or cannot be; unsupported: pipe mode, big endian.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        const WHAT: &str = "perf.data header";
        let mut cursor = Cursor::new(bytes, WHAT, 0);
        match cursor.bytes(8)? {
            b"PERFILE2" => {}
            b"2ELIFREP" => {
                return Err(Error::Unsupported(
                    "a big-endian perf.data file is not read".to_owned(),
                ));
            }
            _ => return Err(cursor.invalid("this is not a perf.data file")),
        }
        let size = cursor.u64()?;
        if size < HEADER_SIZE {
            let problem = "perf.data written to a pipe is not read; pass it through `perf inject -o FILE`";
            return Err(Error::Unsupported(problem.to_owned()));
        }
        let attr_size = cursor.u64()?;
        let mut section = || {
            Ok::<_, Error>(Section {
                offset: cursor.u64()?,
                size: cursor.u64()?,
            })
        };
        let (attrs, data, _event_types) = (section()?, section()?, section()?);
        let feature_bits = [cursor.u64()?, cursor.u64()?, cursor.u64()?, cursor.u64()?];
        let mut file = Self {
            bytes,
            data,
            events: Vec::new(),
            ids: HashMap::new(),
            features: HashMap::new(),
        };
        file.section(data, "data section")?;
        file.read_events(attrs, attr_size)?;
        file.read_feature_table(feature_bits)?;
        Ok(file)
    }

    fn section(&self, section: Section, what: &'static str) -> Result<&'a [u8], Error> {
        let range = usize::try_from(section.offset)
            .ok()
            .zip(usize::try_from(section.size).ok());
        range
            .and_then(|(start, size)| self.bytes.get(start..start.checked_add(size)?))
            .ok_or(Error::Truncated {
                what,
                offset: section.offset,
            })
    }

    fn read_events(&mut self, attrs: Section, attr_size: u64) -> Result<(), Error> {
        const WHAT: &str = "event attribute";
        // An attribute, then where its ids stand.
        let bad = |problem: &str| Error::Invalid {
            what: WHAT,
            offset: attrs.offset,
            problem: problem.to_owned(),
        };
        if !(MIN_ATTR_SIZE + 16..=4096).contains(&attr_size) || attrs.size / attr_size > MAX_EVENTS {
            return Err(bad("its size is out of range"));
        }
        let table = self.section(attrs, WHAT)?;
        let mut ids_left = self.bytes.len() as u64;
        for entry in table.chunks_exact(attr_size as usize) {
            let mut cursor = Cursor::new(entry, WHAT, attrs.offset);
            let (kind, _size, config) = (cursor.u32()?, cursor.u32()?, cursor.u64()?);
            let (_period, sample_type, _read_format) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
            let flags = cursor.u64()?;
            let sample_id_all = flags & 1 << 18 != 0;
            let index = self.events.len();
            self.events.push(EventAttr {
                kind,
                config,
                sample_type: SampleType(if sample_id_all { sample_type } else { 0 }),
                exclude_kernel: flags & 1 << 5 != 0,
            });
            let (_, ids) = entry.split_at_checked(entry.len() - 16).unwrap_or_default();
            let mut cursor = Cursor::new(ids, WHAT, attrs.offset);
            let ids = Section {
                offset: cursor.u64()?,
                size: cursor.u64()?,
            };
            // Tables that share bytes could make any number of ids out of a small file.
            ids_left = ids_left
                .checked_sub(ids.size)
                .ok_or_else(|| bad("its id tables are larger than the file"))?;
            for id in self.section(ids, "event id table")?.chunks_exact(8) {
                self.ids.insert(Cursor::new(id, WHAT, ids.offset).u64()?, index);
            }
        }
        let Some(first) = self.events.first() else {
            return Err(bad("the file has no event"));
        };
        let same = self
            .events
            .iter()
            .all(|event| event.sample_type == first.sample_type);
        if !same && !self.events.iter().all(|event| event.sample_type.has_identifier()) {
            return Err(bad(
                "its events have different sample types and no identifier to tell them apart",
            ));
        }
        Ok(())
    }

    /// The table follows the data: a section for each feature bit that is set.
    fn read_feature_table(&mut self, bits: [u64; 4]) -> Result<(), Error> {
        let offset = self.data.offset.saturating_add(self.data.size);
        let start = usize::try_from(offset)
            .ok()
            .and_then(|start| self.bytes.get(start..))
            .unwrap_or_default();
        let mut cursor = Cursor::new(start, "feature table", offset);
        let set = |feature: &u32| {
            bits.get(*feature as usize / 64)
                .is_some_and(|word| word >> (feature % 64) & 1 != 0)
        };
        for feature in (0..256).filter(set) {
            self.features.insert(
                feature,
                Section {
                    offset: cursor.u64()?,
                    size: cursor.u64()?,
                },
            );
        }
        Ok(())
    }

    /// The contents of a feature, when the file has it and it is inside the file.
    pub(crate) fn feature(&self, feature: u32) -> Option<&'a [u8]> {
        self.features
            .get(&feature)
            .and_then(|section| self.section(*section, "feature").ok())
    }

    /// The items in the order they stand in the file; after an error, nothing more.
    pub fn items(&self) -> impl Iterator<Item = Result<Item<'a>, Error>> {
        let data = self.section(self.data, "data section").unwrap_or_default();
        let mut rest = data;
        std::iter::from_fn(move || {
            while !rest.is_empty() {
                let offset = self.data.offset.saturating_add((data.len() - rest.len()) as u64);
                match self.next_item(&mut rest, offset) {
                    Ok(None) => {}
                    Ok(Some(item)) => return Some(Ok(item)),
                    Err(error) => {
                        rest = &[];
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }

    fn next_item(&self, rest: &mut &'a [u8], offset: u64) -> Result<Option<Item<'a>>, Error> {
        const WHAT: &str = "record";
        let cut = Error::Truncated { what: WHAT, offset };
        let mut header = Cursor::new(rest, WHAT, offset);
        let (kind, misc, size) = (header.u32()?, header.u16()?, usize::from(header.u16()?));
        if size < 8 {
            return Err(header.invalid(format!("it claims {size} bytes, fewer than its header has")));
        }
        let (record, tail) = rest.split_at_checked(size).ok_or(cut.clone())?;
        *rest = tail;
        let raw = RawRecord {
            kind,
            misc,
            body: record.get(8..).unwrap_or_default(),
            offset,
        };
        Ok(match kind {
            auxtrace::AUXTRACE_INFO => Some(Item::Info(IntelPtInfo::parse(&raw)?)),
            auxtrace::TIME_CONV => auxtrace::parse_time_conv(&raw)?.map(Item::Time),
            auxtrace::AUXTRACE => {
                let (data, size) = auxtrace::parse_auxtrace(&raw)?;
                let size = usize::try_from(size).map_err(|_| cut.clone())?;
                let (bytes, tail) = rest.split_at_checked(size).ok_or(cut)?;
                *rest = tail;
                Some(Item::Aux(AuxData { bytes, ..data }))
            }
            kind if COMPRESSED.contains(&kind) => {
                let problem = "compressed records are not read; record without -z";
                return Err(Error::Unsupported(problem.to_owned()));
            }
            kind if kind >= USER_TYPE_START => None,
            _ => Record::parse(&raw, self.sample_type(raw.body))?.map(Item::Record),
        })
    }

    /// What trails a record: of several events, that of the one whose id stands at its end. Records that
    /// perf made up itself have id 0 and look like those of the first event.
    fn sample_type(&self, body: &[u8]) -> SampleType {
        let id = body.last_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        let index = id.and_then(|id| self.ids.get(&id)).copied().unwrap_or(0);
        self.events
            .get(index)
            .map_or(SampleType::default(), |event| event.sample_type)
    }
}
