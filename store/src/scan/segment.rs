//! A segment of a scan: its file of samples, and its stacks and contexts that match.

use super::Scan;
use crate::content::Context;
use crate::file::ParquetFile;
use crate::filter::{Column, Filter};
use crate::segment::{SegmentEntry, TableKind};
use crate::segment_reader::SegmentReader;
use crate::tables::FrameTable;
use crate::{Error, Result};
use std::sync::Arc;

/// A segment of a scan.
pub(crate) struct SegmentScan {
    /// The description.
    pub(crate) entry: SegmentEntry,
    /// The scan.
    pub(super) scan: Arc<Scan>,
    /// The file of samples.
    pub(super) file: Arc<ParquetFile>,
    /// Whether a stack matches. `None`: all do.
    pub(super) stacks: Option<Vec<bool>>,
    /// Whether a context matches. `None`: all do.
    pub(super) contexts: Option<Vec<bool>>,
    /// The labels of contexts, if the groups need them.
    pub(super) labels: Option<Arc<Vec<Context>>>,
}

impl SegmentScan {
    /// Opens a segment.
    pub(super) async fn open(reader: &SegmentReader, scan: Arc<Scan>, entry: SegmentEntry) -> Result<Self> {
        let file = reader.file(&entry, TableKind::Samples).await?;
        let is_label = |column: &Column| matches!(column, Column::Label(_));
        let filters_labels = scan
            .filter
            .matchers
            .iter()
            .any(|matcher| is_label(&matcher.column));
        let groups_labels = scan.group_by.iter().any(is_label);
        let labels = match filters_labels || groups_labels {
            true => Some(reader.contexts(&entry).await?),
            false => None,
        };
        let contexts = match filters_labels {
            true => labels
                .as_ref()
                .and_then(|labels| matching_contexts(&scan, labels)),
            false => None,
        };
        Ok(Self {
            stacks: matching_stacks(reader, &scan, &entry).await?,
            contexts,
            labels: labels.filter(|_| groups_labels),
            entry,
            scan,
            file,
        })
    }

    /// Returns the number of stacks.
    pub(crate) fn stack_count(&self) -> usize {
        usize::try_from(self.entry.stacks.rows).unwrap_or(usize::MAX)
    }

    /// Returns the error of a file of samples.
    pub(crate) fn damaged(&self, problem: &str) -> Error {
        Error::damaged(self.file.key(), problem)
    }
}

/// Returns which contexts match the conditions on labels. `None`: all.
fn matching_contexts(scan: &Scan, labels: &[Context]) -> Option<Vec<bool>> {
    let holds = |context: &Context| {
        scan.filter.matchers.iter().all(|matcher| match &matcher.column {
            Column::Label(key) => matcher.condition.holds(label(context, key)),
            _ => true,
        })
    };
    let matches: Vec<bool> = labels.iter().map(holds).collect();
    matches.contains(&false).then_some(matches)
}

/// Returns the value of a label. It is empty if there is none.
pub(super) fn label<'a>(context: &'a Context, key: &str) -> &'a str {
    let place = context.binary_search_by(|(other, _)| (**other).cmp(key));
    let pair = place.ok().and_then(|place| context.get(place));
    pair.map_or("", |(_, value)| value)
}

/// Returns which stacks have the frames that the filter asks for. `None`: all stacks match.
async fn matching_stacks(
    reader: &SegmentReader,
    scan: &Scan,
    entry: &SegmentEntry,
) -> Result<Option<Vec<bool>>> {
    let Filter { module, stacks, .. } = &scan.filter;
    if module.is_none() && stacks.conditions().next().is_none() {
        return Ok(None);
    }
    let frames = reader.frames(entry, None).await?;
    let all = |are: &dyn Fn(&FrameTable) -> Vec<bool>| -> Vec<bool> {
        frames.iter().flat_map(|(_, part)| are(part)).collect()
    };
    let of_module = module
        .iter()
        .map(|module| (all(&|part| part.are_of(module)), true));
    let in_sets = stacks
        .conditions()
        .map(|(set, wanted)| (all(&|part| part.are_in(set)), wanted));
    // For each condition: the frames, and whether a stack must have one of them.
    let conditions: Vec<(Vec<bool>, bool)> = of_module.chain(in_sets).collect();
    let holds = |frames: &[u32]| {
        conditions.iter().all(|(members, wanted)| {
            let is_member = |frame: &u32| members.get(*frame as usize) == Some(&true);
            frames.iter().any(is_member) == *wanted
        })
    };
    let stacks = reader.stacks(entry, None).await?;
    let mut matches = Vec::with_capacity(stacks.rows());
    for (_, part) in stacks.iter() {
        matches.extend((0..part.len()).map(|stack| part.of(stack).is_some_and(holds)));
    }
    Ok(Some(matches))
}
