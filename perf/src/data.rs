//! Parses a `perf.data` file: header, events, features, records.
//!
//! `perf record -o -` writes to a pipe: a shorter header, and records in place of the tables of
//! events and features. Files of this form are read too.
//!
//! The file is read in place. The crate `linux-perf-data` is not used, because it allocates by the
//! unchecked section sizes in a file, and does not read AUX records.

use crate::Error;
use crate::auxtrace::{self, AuxData, IntelPtInfo};
use crate::cursor::Cursor;
use crate::id_index::{self, IdEntry};
use crate::record::{RawRecord, Record};
use crate::sample::{self, Sample, SampleLayout};
use crate::sample_id::SampleType;
use backtrail_pt::TscConversion;
use std::collections::HashMap;

/// `PERF_RECORD_COMPRESSED` and `PERF_RECORD_COMPRESSED2`.
const COMPRESSED: [u32; 2] = [81, 83];
/// The first type of `perf record`'s own records (`PERF_RECORD_USER_TYPE_START`).
const USER_TYPE_START: u32 = 64;
/// `sizeof(struct perf_file_header)`.
const HEADER_SIZE: u64 = 104;
/// `sizeof(struct perf_pipe_file_header)`.
const PIPE_HEADER_SIZE: u64 = 16;
/// `HEADER_BUILD_ID` in `tools/perf/util/header.h`: the feature with build ids.
const BUILD_ID: u32 = 2;
/// `PERF_RECORD_HEADER_ATTR` of a pipe: an event.
const HEADER_ATTR: u32 = 64;
/// `PERF_RECORD_HEADER_TRACING_DATA` of a pipe, which is followed by its data.
const HEADER_TRACING_DATA: u32 = 66;
/// `PERF_RECORD_HEADER_BUILD_ID` of a pipe.
const HEADER_BUILD_ID: u32 = 67;
/// `PERF_RECORD_HEADER_FEATURE` of a pipe.
const HEADER_FEATURE: u32 = 80;
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
    /// Whether it is enabled by `execve`. Only events of a thread can be.
    pub enable_on_exec: bool,
    /// The layout of its samples.
    pub layout: SampleLayout,
    /// The number of events between two samples. `None`: the kernel adapts it to a frequency.
    pub period: Option<u64>,
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
    /// The build id records of a pipe.
    build_id_records: Vec<Section>,
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
    /// The threads of event ids.
    Ids(Vec<IdEntry>),
    /// A sample, which [`PerfData::sample`] reads.
    Sample(RawRecord<'a>),
}

impl<'a> PerfData<'a> {
    /// Parses the header, the events and the feature table.
    ///
    /// # Errors
    /// Fails if the file is truncated or invalid, or big endian, which is not supported.
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
        if size == PIPE_HEADER_SIZE {
            return Self::parse_pipe(bytes);
        }
        if size < HEADER_SIZE {
            return Err(cursor.invalid(format!("its header has {size} bytes")));
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
        let mut file = Self::new(bytes, data);
        file.section(data, "data section")?;
        file.read_events(attrs, attr_size)?;
        file.read_feature_table(feature_bits)?;
        Ok(file)
    }

    fn new(bytes: &'a [u8], data: Section) -> Self {
        Self {
            bytes,
            data,
            events: Vec::new(),
            ids: HashMap::new(),
            features: HashMap::new(),
            build_id_records: Vec::new(),
        }
    }

    /// Reads the events and features of a pipe, which are among its records.
    fn parse_pipe(bytes: &'a [u8]) -> Result<Self, Error> {
        let size = (bytes.len() as u64).saturating_sub(PIPE_HEADER_SIZE);
        let data = Section {
            offset: PIPE_HEADER_SIZE,
            size,
        };
        let mut file = Self::new(bytes, data);
        let mut rest = file.section(data, "data section")?;
        while !rest.is_empty() {
            let offset = (bytes.len() - rest.len()) as u64;
            let (raw, _) = take_record(&mut rest, offset)?;
            let body = |skip: usize| Section {
                offset: offset + 8 + skip as u64,
                size: raw.body.len().saturating_sub(skip) as u64,
            };
            match raw.kind {
                HEADER_ATTR => file.add_pipe_event(&raw)?,
                HEADER_FEATURE => {
                    let mut cursor = Cursor::new(raw.body, "PERF_RECORD_HEADER_FEATURE", offset);
                    if let Ok(feature) = u32::try_from(cursor.u64()?) {
                        file.features.insert(feature, body(8));
                    }
                }
                HEADER_BUILD_ID => file.build_id_records.push(Section {
                    offset,
                    size: body(0).size + 8,
                }),
                _ => {}
            }
        }
        file.check_sample_types(PIPE_HEADER_SIZE)?;
        Ok(file)
    }

    /// Adds the event of a `PERF_RECORD_HEADER_ATTR`: the attribute, followed by its ids.
    fn add_pipe_event(&mut self, raw: &RawRecord<'_>) -> Result<(), Error> {
        const WHAT: &str = "PERF_RECORD_HEADER_ATTR";
        let cursor = Cursor::new(raw.body, WHAT, raw.offset);
        let stated = raw.body.get(4..8).and_then(|size| size.try_into().ok());
        let size = match stated.map(u32::from_le_bytes) {
            None | Some(0) => MIN_ATTR_SIZE,
            Some(size) => u64::from(size),
        };
        let (attr, ids) = usize::try_from(size)
            .ok()
            .and_then(|size| raw.body.split_at_checked(size))
            .filter(|_| size >= MIN_ATTR_SIZE)
            .ok_or_else(|| cursor.invalid(format!("its attribute has {size} bytes")))?;
        if self.events.len() as u64 >= MAX_EVENTS {
            return Err(cursor.invalid("the file has too many events"));
        }
        self.add_event(attr, ids, raw.offset)
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
            let (attr, ids) = entry.split_at_checked(entry.len() - 16).unwrap_or_default();
            let mut cursor = Cursor::new(ids, WHAT, attrs.offset);
            let ids = Section {
                offset: cursor.u64()?,
                size: cursor.u64()?,
            };
            // Overlapping tables could produce any number of ids from a small file.
            ids_left = ids_left
                .checked_sub(ids.size)
                .ok_or_else(|| bad("its id tables are larger than the file"))?;
            self.add_event(attr, self.section(ids, "event id table")?, attrs.offset)?;
        }
        self.check_sample_types(attrs.offset)
    }

    /// Adds the event of an attribute, with its ids.
    fn add_event(&mut self, attr: &[u8], ids: &[u8], offset: u64) -> Result<(), Error> {
        const WHAT: &str = "event attribute";
        let mut cursor = Cursor::new(attr, WHAT, offset);
        let (kind, _size, config) = (cursor.u32()?, cursor.u32()?, cursor.u64()?);
        let (period, sample_type, read_format) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let flags = cursor.u64()?;
        // `wakeup_events`, `bp_type`, `config1`, `config2`. Early attributes end before them.
        let branch_sample_type = cursor
            .bytes(4 + 4 + 8 + 8)
            .and_then(|_| cursor.u64())
            .unwrap_or(0);
        let user_registers = cursor.u64().unwrap_or(0);
        let is_frequency = flags & 1 << 10 != 0;
        let sample_id_all = flags & 1 << 18 != 0;
        let index = self.events.len();
        self.events.push(EventAttr {
            kind,
            config,
            sample_type: SampleType(if sample_id_all { sample_type } else { 0 }),
            exclude_kernel: flags & 1 << 5 != 0,
            enable_on_exec: flags & 1 << 12 != 0,
            layout: SampleLayout {
                sample_type,
                read_format,
                branch_sample_type,
                user_registers,
            },
            period: (!is_frequency).then_some(period),
        });
        for id in ids.chunks_exact(8) {
            self.ids.insert(Cursor::new(id, WHAT, offset).u64()?, index);
        }
        Ok(())
    }

    /// Checks that there are events, and that records state theirs if the layouts differ.
    fn check_sample_types(&self, offset: u64) -> Result<(), Error> {
        let bad = |problem: &str| Error::Invalid {
            what: "event attribute",
            offset,
            problem: problem.to_owned(),
        };
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

    /// Returns the parts with build ids: the feature, and the records of a pipe.
    pub(crate) fn build_id_parts(&self) -> impl Iterator<Item = &'a [u8]> {
        let records = self.build_id_records.iter();
        let records = records.filter_map(|record| self.section(*record, "build id").ok());
        self.feature(BUILD_ID).into_iter().chain(records)
    }

    /// Returns the event with this id.
    #[must_use]
    pub fn event_of(&self, id: u64) -> Option<&EventAttr> {
        self.events.get(*self.ids.get(&id)?)
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
        let (raw, bytes) = take_record(rest, offset)?;
        Ok(match raw.kind {
            auxtrace::AUXTRACE_INFO => Some(DataItem::Info(IntelPtInfo::parse(&raw)?)),
            auxtrace::TIME_CONV => auxtrace::parse_time_conv(&raw)?.map(DataItem::Time),
            auxtrace::AUXTRACE => {
                let (data, _) = auxtrace::parse_auxtrace(&raw)?;
                Some(DataItem::Aux(AuxData { bytes, ..data }))
            }
            id_index::ID_INDEX => Some(DataItem::Ids(id_index::parse(&raw)?)),
            kind if COMPRESSED.contains(&kind) => {
                let problem = "compressed records are not supported; record without -z";
                return Err(Error::Unsupported(problem.to_owned()));
            }
            kind if kind >= USER_TYPE_START => None,
            sample::PERF_RECORD_SAMPLE => Some(DataItem::Sample(raw)),
            _ => Record::parse(&raw, self.sample_type(raw.body))?.map(DataItem::Record),
        })
    }

    /// Reads a sample, and returns the index of its event with it.
    ///
    /// # Errors
    ///
    /// Fails if the sample is too short for its event's layout.
    pub fn sample(&self, raw: &RawRecord<'_>) -> Result<(usize, Sample), Error> {
        let layout = |index: usize| {
            self.events
                .get(index)
                .map_or(SampleLayout::default(), |event| event.layout)
        };
        let index = |id: Option<u64>| id.and_then(|id| self.ids.get(&id)).copied();
        let first = layout(0);
        // The identifier comes first, so that the layout of the rest is known by it.
        let identifier = raw
            .body
            .first_chunk::<8>()
            .map(|bytes| u64::from_le_bytes(*bytes));
        let event = index(identifier.filter(|_| first.has_identifier()));
        let sample = Sample::parse(raw, &event.map_or(first, layout))?;
        Ok((event.or_else(|| index(sample.id)).unwrap_or(0), sample))
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

/// Takes the next record, and the data that follows it, off the front of `rest`.
fn take_record<'a>(rest: &mut &'a [u8], offset: u64) -> Result<(RawRecord<'a>, &'a [u8]), Error> {
    const WHAT: &str = "record";
    let cut = Error::Truncated { what: WHAT, offset };
    let mut header = Cursor::new(rest, WHAT, offset);
    let (kind, misc, size) = (header.u32()?, header.u16()?, usize::from(header.u16()?));
    if size < 8 {
        return Err(header.invalid(format!("its size of {size} bytes is smaller than its header")));
    }
    let (record, tail) = rest.split_at_checked(size).ok_or(cut.clone())?;
    let raw = RawRecord {
        kind,
        misc,
        body: record.get(8..).unwrap_or_default(),
        offset,
    };
    let following = match kind {
        auxtrace::AUXTRACE => auxtrace::parse_auxtrace(&raw)?.1,
        HEADER_TRACING_DATA => Cursor::new(raw.body, WHAT, offset).u32()?.into(),
        _ => 0,
    };
    let following = usize::try_from(following).map_err(|_| cut.clone())?;
    let (data, tail) = tail.split_at_checked(following).ok_or(cut)?;
    *rest = tail;
    Ok((raw, data))
}
