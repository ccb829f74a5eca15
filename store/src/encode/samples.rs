//! The columns of samples.

use super::{constant, texts};
use crate::content::{Content, PeriodicEvent, Row};
use crate::origin::Origin;
use crate::schema::schema;
use crate::segment::{SegmentId, TableKind};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array,
    UInt64Array,
};
use arrow_schema::{ArrowError, SchemaRef};
use backtrail_profile::{Event, Id, StringId, Table, Thread};
use std::hash::Hash;
use std::sync::Arc;

/// The texts of a table's values, as a column's dictionary.
struct Texts<T> {
    text: fn(&Content, &T) -> Box<str>,
    values: ArrayRef,
}

impl<T: Hash + Eq> Texts<T> {
    fn new(text: fn(&Content, &T) -> Box<str>) -> Self {
        let values = Arc::new(StringArray::from(Vec::<&str>::new()));
        Self { text, values }
    }

    /// Adds the texts of values that are new in the table.
    fn update<I: Id>(&mut self, content: &Content, table: &Table<I, T>) {
        if self.values.len() != table.len() {
            let texts = table.iter().map(|(_, value)| (self.text)(content, value));
            self.values = Arc::new(StringArray::from_iter_values(texts));
        }
    }
}

fn event_text(content: &Content, event: &PeriodicEvent, text: fn(&Event) -> StringId) -> Box<str> {
    let profile = &content.profile;
    let event = profile.events.get(event.event);
    event.map_or_else(Box::default, |event| profile.text(text(event)).into())
}

/// The encoder of samples. It keeps the dictionaries between batches.
pub(crate) struct SampleEncoder {
    segment: SegmentId,
    schema: SchemaRef,
    origins: [Texts<Origin>; 5],
    events: [Texts<PeriodicEvent>; 2],
    threads: [Texts<Thread>; 2],
}

impl SampleEncoder {
    /// Builds the encoder of a segment.
    pub(crate) fn new(segment: SegmentId) -> Self {
        Self {
            segment,
            schema: schema(TableKind::Samples),
            origins: [
                Texts::new(|_, origin: &Origin| origin.service.clone()),
                Texts::new(|_, origin| origin.host.clone()),
                Texts::new(|_, origin| origin.build.clone()),
                Texts::new(|_, origin| origin.region.clone()),
                Texts::new(|_, origin| origin.language.clone()),
            ],
            events: [
                Texts::new(|content, one| event_text(content, one, |event| event.name)),
                Texts::new(|content, one| event_text(content, one, |event| event.unit)),
            ],
            threads: [
                Texts::new(|content, thread: &Thread| content.profile.text(thread.process_name).into()),
                Texts::new(|content, thread| content.profile.text(thread.name).into()),
            ],
        }
    }

    /// Returns the columns of rows. `stacks` and `contexts` are the ids of the segment, by row.
    pub(crate) fn batch(
        &mut self,
        content: &Content,
        rows: &[Row],
        stacks: Vec<u32>,
        contexts: Vec<u32>,
    ) -> Result<RecordBatch, ArrowError> {
        let profile = &content.profile;
        for texts in &mut self.origins {
            texts.update(content, &content.origins);
        }
        for texts in &mut self.events {
            texts.update(content, &content.events);
        }
        for texts in &mut self.threads {
            texts.update(content, &profile.threads);
        }
        let key = |index: usize| i32::try_from(index).unwrap_or(i32::MAX);
        let origins = Int32Array::from_iter_values(rows.iter().map(|row| key(row.origin.index())));
        let events = Int32Array::from_iter_values(rows.iter().map(|row| key(row.event.index())));
        let threads: Int32Array = rows
            .iter()
            .map(|row| row.thread.map(|thread| key(thread.index())))
            .collect();
        let thread = |row: &Row| profile.threads.get(row.thread?);
        let period = |row: &Row| content.events.get(row.event).map_or(0, |event| event.period);
        let [service, host, build, region, language] = self
            .origins
            .each_ref()
            .map(|all| texts(&all.values, origins.clone()));
        let [event, unit] = self
            .events
            .each_ref()
            .map(|all| texts(&all.values, events.clone()));
        let [process, name] = self
            .threads
            .each_ref()
            .map(|all| texts(&all.values, threads.clone()));
        let times = rows.iter().map(|row| row.time);
        let pids = rows.iter().map(|row| thread(row).map(|thread| thread.pid.0));
        let tids = rows.iter().map(|row| thread(row).map(|thread| thread.tid.0));
        let columns: Vec<ArrayRef> = vec![
            constant(&self.segment.to_string(), rows.len())?,
            Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")),
            service?,
            host?,
            build?,
            region?,
            language?,
            event?,
            unit?,
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(period))),
            Arc::new(pids.collect::<UInt32Array>()),
            process?,
            Arc::new(tids.collect::<UInt32Array>()),
            name?,
            Arc::new(rows.iter().map(|row| row.cpu).collect::<UInt32Array>()),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.weight))),
            Arc::new(UInt32Array::from(stacks)),
            Arc::new(UInt32Array::from(contexts)),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}
