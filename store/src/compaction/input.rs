//! A segment that is read in the order of its samples.

use crate::columns::{Texts, column, values};
use crate::content::{Content, ContextId, OriginId, PeriodicEvent, PeriodicEventId, Row};
use crate::file::{ParquetFile, next_batch};
use crate::origin::Origin;
use crate::segment::{SegmentEntry, TableKind};
use crate::segment_reader::SegmentReader;
use crate::stack_index::{SegmentStacks, StackIndex};
use crate::{Error, Result};
use arrow_array::types::{Int64Type, TimestampMicrosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch, UInt32Array};
use backtrail_profile::{Event, StackId, Thread, ThreadId};
use backtrail_pt::{Pid, Tid};
use object_store::ObjectStore;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The columns of samples but the segment.
const COLUMNS: std::ops::Range<usize> = 1..18;

/// A segment whose samples are read.
pub(super) struct Input {
    entry: SegmentEntry,
    file: Arc<ParquetFile>,
    /// The ids in the contents of the segment's stacks.
    stacks: Vec<StackId>,
    /// The ids in the contents of the segment's contexts.
    contexts: Vec<ContextId>,
    /// The next row group.
    group: usize,
    batches: Option<ParquetRecordBatchReader>,
    rows: std::vec::IntoIter<Row>,
}

impl Input {
    /// Opens a segment, and adds its stacks and contexts to the contents.
    pub(super) async fn open(
        reader: &SegmentReader,
        entry: SegmentEntry,
        content: &mut Content,
        index: &mut StackIndex,
    ) -> Result<Self> {
        let file = reader.file(&entry, TableKind::Samples).await?;
        let read = SegmentStacks::read(reader, &entry, None).await?;
        let stacks = index.resolve(&mut content.profile, &entry, &read, None)?;
        let labels = reader.contexts(&entry).await?;
        let contexts = labels.iter().map(|labels| content.context(labels.clone()));
        Ok(Self {
            contexts: contexts.collect::<Result<_>>()?,
            entry,
            file,
            stacks,
            group: 0,
            batches: None,
            rows: Vec::new().into_iter(),
        })
    }

    /// Returns the description of the segment.
    pub(super) fn entry(&self) -> &SegmentEntry {
        &self.entry
    }

    /// Returns the next sample without taking it.
    pub(super) fn peek(&self) -> Option<&Row> {
        self.rows.as_slice().first()
    }

    /// Takes the next sample, and reads more if there is none left in memory.
    pub(super) fn take(
        &mut self,
        runtime: &Handle,
        objects: &dyn ObjectStore,
        content: &mut Content,
    ) -> Result<Option<Row>> {
        let row = self.rows.next();
        if self.rows.as_slice().is_empty() {
            self.fill(runtime, objects, content)?;
        }
        Ok(row)
    }

    /// Reads the next batch that has samples.
    pub(super) fn fill(
        &mut self,
        runtime: &Handle,
        objects: &dyn ObjectStore,
        content: &mut Content,
    ) -> Result<()> {
        while self.rows.as_slice().is_empty() {
            if let Some(batches) = &mut self.batches
                && let Some(batch) = next_batch(self.file.key(), batches)?
            {
                self.rows = self.decode(&batch, content)?.into_iter();
                continue;
            }
            if self.group >= self.file.groups() {
                self.batches = None;
                return Ok(());
            }
            let columns: Vec<usize> = COLUMNS.collect();
            let fetched = runtime.block_on(self.file.fetch(objects, self.group, &columns))?;
            self.batches = Some(fetched.batches()?);
            self.group += 1;
        }
        Ok(())
    }

    fn decode(&self, batch: &RecordBatch, content: &mut Content) -> Result<Vec<Row>> {
        let key = self.file.key();
        let times = values::<TimestampMicrosecondType>(key, batch, "time")?;
        let weights = values::<Int64Type>(key, batch, "weight")?;
        let stacks = values::<UInt32Type>(key, batch, "stack")?;
        let contexts = values::<UInt32Type>(key, batch, "context")?;
        let cpus = column::<UInt32Array>(key, batch, "cpu")?;
        let mut origins = Origins::new(key, batch)?;
        let mut events = Events::new(key, batch)?;
        let mut threads = Threads::new(key, batch)?;
        let outside =
            |name: &str| Error::damaged(key, format!("a sample names a {name} that does not exist"));
        let mut rows = Vec::with_capacity(batch.num_rows());
        let numbers = times.iter().zip(weights).zip(stacks.iter().zip(contexts));
        for (row, ((time, weight), (stack, context))) in numbers.enumerate() {
            let stack = self.stacks.get(*stack as usize).copied();
            let context = self.contexts.get(*context as usize).copied();
            rows.push(Row {
                time: *time,
                weight: *weight,
                origin: origins.of(row, content)?,
                event: events.of(row, content)?,
                thread: threads.of(row, content)?,
                cpu: (!cpus.is_null(row)).then(|| cpus.value(row)),
                stack: stack.ok_or_else(|| outside("stack"))?,
                context: context.ok_or_else(|| outside("context"))?,
            });
        }
        Ok(rows)
    }
}

/// The origins of a batch's rows.
struct Origins<'a> {
    columns: [Texts<'a>; 5],
    known: HashMap<[Option<usize>; 5], OriginId>,
    last: Option<([Option<usize>; 5], OriginId)>,
}

impl<'a> Origins<'a> {
    fn new(key: &str, batch: &'a RecordBatch) -> Result<Self> {
        let column = |name| Texts::new(key, batch, name);
        Ok(Self {
            columns: [
                column("service")?,
                column("host")?,
                column("build")?,
                column("region")?,
                column("language")?,
            ],
            known: HashMap::new(),
            last: None,
        })
    }

    fn of(&mut self, row: usize, content: &mut Content) -> Result<OriginId> {
        let indexes = self.columns.each_ref().map(|column| column.index(row));
        if let Some((last, id)) = self.last
            && last == indexes
        {
            return Ok(id);
        }
        let id = match self.known.get(&indexes) {
            Some(id) => *id,
            None => {
                let texts = self
                    .columns
                    .each_ref()
                    .map(|column| column.text(row).unwrap_or(""));
                let [service, host, build, region, language] = texts.map(Box::from);
                let origin = Origin {
                    service,
                    host,
                    build,
                    region,
                    language,
                };
                let id = content.origins.intern(origin)?;
                self.known.insert(indexes, id);
                id
            }
        };
        self.last = Some((indexes, id));
        Ok(id)
    }
}

/// The columns of an event: the indexes of its name and unit, and its period.
type EventKey = (Option<usize>, Option<usize>, u64);

/// The events of a batch's rows.
struct Events<'a> {
    names: Texts<'a>,
    units: Texts<'a>,
    periods: &'a [u64],
    known: HashMap<EventKey, PeriodicEventId>,
    last: Option<(EventKey, PeriodicEventId)>,
}

impl<'a> Events<'a> {
    fn new(key: &str, batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            names: Texts::new(key, batch, "event")?,
            units: Texts::new(key, batch, "unit")?,
            periods: values::<UInt64Type>(key, batch, "period")?,
            known: HashMap::new(),
            last: None,
        })
    }

    fn of(&mut self, row: usize, content: &mut Content) -> Result<PeriodicEventId> {
        let period = self.periods.get(row).copied().unwrap_or(0);
        let key = (self.names.index(row), self.units.index(row), period);
        if let Some((last, id)) = self.last
            && last == key
        {
            return Ok(id);
        }
        let id = match self.known.get(&key) {
            Some(id) => *id,
            None => {
                let name = content.profile.string(self.names.text(row).unwrap_or(""))?;
                let unit = content.profile.string(self.units.text(row).unwrap_or(""))?;
                let event = content.profile.intern_event(Event { name, unit, period })?;
                let id = content.events.intern(PeriodicEvent { event, period })?;
                self.known.insert(key, id);
                id
            }
        };
        self.last = Some((key, id));
        Ok(id)
    }
}

/// The columns of a thread: its ids, and the indexes of its names.
type ThreadKey = (u32, u32, Option<usize>, Option<usize>);

/// The threads of a batch's rows.
struct Threads<'a> {
    pids: &'a UInt32Array,
    tids: &'a UInt32Array,
    processes: Texts<'a>,
    names: Texts<'a>,
    known: HashMap<ThreadKey, ThreadId>,
    last: Option<(ThreadKey, ThreadId)>,
}

impl<'a> Threads<'a> {
    fn new(key: &str, batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            pids: column::<UInt32Array>(key, batch, "pid")?,
            tids: column::<UInt32Array>(key, batch, "tid")?,
            processes: Texts::new(key, batch, "process")?,
            names: Texts::new(key, batch, "thread")?,
            known: HashMap::new(),
            last: None,
        })
    }

    fn of(&mut self, row: usize, content: &mut Content) -> Result<Option<ThreadId>> {
        if self.pids.is_null(row) || self.tids.is_null(row) {
            return Ok(None);
        }
        let (pid, tid) = (self.pids.value(row), self.tids.value(row));
        let key = (pid, tid, self.processes.index(row), self.names.index(row));
        if let Some((last, id)) = self.last
            && last == key
        {
            return Ok(Some(id));
        }
        let id = match self.known.get(&key) {
            Some(id) => *id,
            None => {
                let profile = &mut content.profile;
                let thread = Thread {
                    pid: Pid(pid),
                    tid: Tid(tid),
                    process_name: profile.string(self.processes.text(row).unwrap_or(""))?,
                    name: profile.string(self.names.text(row).unwrap_or(""))?,
                };
                let id = profile.threads.intern(thread)?;
                self.known.insert(key, id);
                id
            }
        };
        self.last = Some((key, id));
        Ok(Some(id))
    }
}
