//! The merge of sorted segments.

use super::input::Input;
use super::sink::UploadSink;
use crate::content::{Content, Row};
use crate::hour::Hour;
use crate::limits::Cancel;
use crate::schema::Effort;
use crate::segment::SegmentEntry;
use crate::segment_writer::{SegmentHistory, SegmentWriter};
use crate::{Error, Result};
use object_store::ObjectStore;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The samples that are written at once.
const BATCH: usize = 8192;

/// Writes the samples of all inputs in their order. Returns the new segment.
pub(super) fn merge(
    runtime: Handle,
    objects: Arc<dyn ObjectStore>,
    hour: Hour,
    mut content: Content,
    inputs: Vec<Input>,
    history: SegmentHistory,
    cancel: &Cancel,
) -> Result<SegmentEntry> {
    let mut writer = SegmentWriter::new(hour, Effort::High)?;
    let mut sink = UploadSink::new(runtime.clone(), Arc::clone(&objects), hour, writer.id());
    let result = (|| {
        let mut rows = Vec::with_capacity(BATCH);
        let mut heap = Heap::new(inputs, &runtime, &*objects, &mut content)?;
        while let Some(row) = heap.take(&runtime, &*objects, &mut content)? {
            rows.push(row);
            if rows.len() == BATCH {
                if cancel.is_canceled() {
                    return Err(Error::Canceled);
                }
                writer.push(&content, &rows, &mut sink)?;
                rows.clear();
            }
        }
        drop(heap);
        writer.push(&content, &rows, &mut sink)?;
        writer.finish(&content, history, &mut sink)
    })();
    match result {
        Ok(entry) => {
            sink.finish()?;
            Ok(entry)
        }
        Err(error) => {
            sink.abort();
            Err(error)
        }
    }
}

/// Inputs as a binary heap by their next sample.
struct Heap {
    inputs: Vec<Input>,
}

impl Heap {
    fn new(
        inputs: Vec<Input>,
        runtime: &Handle,
        objects: &dyn ObjectStore,
        content: &mut Content,
    ) -> Result<Self> {
        let mut heap = Self { inputs };
        for input in &mut heap.inputs {
            input.fill(runtime, objects, content)?;
        }
        heap.inputs.retain(|input| input.peek().is_some());
        for place in (0..heap.inputs.len() / 2).rev() {
            heap.sift_down(place, content);
        }
        Ok(heap)
    }

    /// Takes the first sample of all.
    fn take(
        &mut self,
        runtime: &Handle,
        objects: &dyn ObjectStore,
        content: &mut Content,
    ) -> Result<Option<Row>> {
        let Some(first) = self.inputs.first_mut() else {
            return Ok(None);
        };
        let row = first.take(runtime, objects, content)?;
        if first.peek().is_none() {
            self.inputs.swap_remove(0);
        }
        self.sift_down(0, content);
        Ok(row)
    }

    /// Moves an input down to its place.
    fn sift_down(&mut self, mut place: usize, content: &Content) {
        loop {
            let children = [place * 2 + 1, place * 2 + 2];
            let mut first = place;
            for child in children {
                if child < self.inputs.len() && self.is_before(child, first, content) {
                    first = child;
                }
            }
            if first == place {
                return;
            }
            self.inputs.swap(first, place);
            place = first;
        }
    }

    fn is_before(&self, one: usize, other: usize, content: &Content) -> bool {
        let next = |place: usize| self.inputs.get(place).and_then(Input::peek);
        match (next(one), next(other)) {
            (Some(one), Some(other)) => content.compare(one, other).is_lt(),
            (one, _) => one.is_some(),
        }
    }
}
