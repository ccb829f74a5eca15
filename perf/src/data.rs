//! Parses a `perf.data` file: header, events, features, records.
//!
//! The file is read in place. The crate `linux-perf-data` is not used, because it allocates by the
//! unchecked section sizes in a file, and does not read AUX records.

use crate::Error;
use crate::auxtrace::{self, AuxData, IntelPtInfo};
use crate::cursor::Cursor;
use crate::record::{RawRecord, Record};
use crate::sample_id::SampleType;
use backtrail_pt::TscConversion;
use std::collections::HashMap;

/// `PERF_RECORD_COMPRESSED` and `PERF_RECORD_COMPRESSED2`.
const COMPRESSED: [u32; 2] = [81, 83];
/// The first type of `perf record`'s own records (`PERF_RECORD_USER_TYPE_START`).
const USER_TYPE_START: u32 = 64;
/// `sizeof(struct perf_file_header)`. The header of a pipe has 16 bytes.
const HEADER_SIZE: u64 = 104;
/// The minimum size of `perf_event_attr`, up to its flags (`PERF_ATTR_SIZE_VER0`).
const MIN_ATTR_SIZE: u64 = 64;
/// The maximum number of events.
const MAX_EVENTS: u64 = 1 << 16;

/// A section of the file.
#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

/// A recorded event (`perf_event_attr`).
#[derive(Clone, Copy, Debug)]
pub struct EventAttr {
    /// The PMU type.
    pub kind: u32,
    /// The configuration of the event.
    pub config: u64,
    /// The `sample_id` fields of its records, if any.
    pub sample_type: SampleType,
    /// Whether the kernel is excluded.
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

/// An item in the data section.
#[derive(Debug)]
pub enum DataItem<'a> {
    /// A record of the kernel.
    Record(Record),
    /// The settings of Intel PT.
    Info(IntelPtInfo),
    /// AUX data.
    Aux(AuxData<'a>),
    /// The time conversion.
    Time(TscConversion),
}

impl<'a> PerfData<'a> {
    /// Parses the header, the events and the feature table.
    ///
    /// # Errors
    /// Fails if the file is truncated or invalid, or in pipe mode or big endian, which are not
    /// supported.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        const WHAT: &str = "perf.data header";
        let mut cursor = Cursor::new(bytes, WHAT, 0);
        match cursor.bytes(8)? {
            b"PERFILE2" => {}
            b"2ELIFREP" => {
                return Err(Error::Unsupported(
                    "big-endian perf.data files are not supported".to_owned(),
                ));
            }
            _ => return Err(cursor.invalid("this is not a perf.data file")),
        }
        let size = cursor.u64()?;
        if size < HEADER_SIZE {
            let problem = "perf.data in pipe mode is not supported; convert it with `perf inject -o FILE`";
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
        // An attribute, followed by the location of its ids.
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
            // Overlapping tables could produce any number of ids from a small file.
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
                "its events have different sample types, but no PERF_SAMPLE_IDENTIFIER",
            ));
        }
        Ok(())
    }

    /// Reads the table after the data: a section for each feature bit that is set.
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

    /// Returns the content of a feature, if the file has it.
    pub(crate) fn feature(&self, feature: u32) -> Option<&'a [u8]> {
        self.features
            .get(&feature)
            .and_then(|section| self.section(*section, "feature").ok())
    }

    /// Returns the items in file order. Ends after an error.
    pub fn items(&self) -> impl Iterator<Item = Result<DataItem<'a>, Error>> {
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

    fn next_item(&self, rest: &mut &'a [u8], offset: u64) -> Result<Option<DataItem<'a>>, Error> {
        const WHAT: &str = "record";
        let cut = Error::Truncated { what: WHAT, offset };
        let mut header = Cursor::new(rest, WHAT, offset);
        let (kind, misc, size) = (header.u32()?, header.u16()?, usize::from(header.u16()?));
        if size < 8 {
            return Err(header.invalid(format!("its size of {size} bytes is smaller than its header")));
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
            auxtrace::AUXTRACE_INFO => Some(DataItem::Info(IntelPtInfo::parse(&raw)?)),
            auxtrace::TIME_CONV => auxtrace::parse_time_conv(&raw)?.map(DataItem::Time),
            auxtrace::AUXTRACE => {
                let (data, size) = auxtrace::parse_auxtrace(&raw)?;
                let size = usize::try_from(size).map_err(|_| cut.clone())?;
                let (bytes, tail) = rest.split_at_checked(size).ok_or(cut)?;
                *rest = tail;
                Some(DataItem::Aux(AuxData { bytes, ..data }))
            }
            kind if COMPRESSED.contains(&kind) => {
                let problem = "compressed records are not supported; record without -z";
                return Err(Error::Unsupported(problem.to_owned()));
            }
            kind if kind >= USER_TYPE_START => None,
            _ => Record::parse(&raw, self.sample_type(raw.body))?.map(DataItem::Record),
        })
    }

    /// Returns the `sample_type` of a record. With several events, the id at the end of the record
    /// selects the event. Records that perf synthesized have id 0 and the layout of the first
    /// event.
    fn sample_type(&self, body: &[u8]) -> SampleType {
        let id = body.last_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        let index = id.and_then(|id| self.ids.get(&id)).copied().unwrap_or(0);
        self.events
            .get(index)
            .map_or(SampleType::default(), |event| event.sample_type)
    }
}
