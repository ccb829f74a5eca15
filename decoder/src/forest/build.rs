//! Walks a history, block by block, and tells what happens between two blocks by the forest's rules.

mod rules;

use super::{Forest, Functions};
use crate::watch::Stage;
use crate::{Canceled, History, MarkKind, Watch};
use rules::Rules;

/// Blocks between two reports.
const REPORT_EVERY: usize = 1 << 16;

pub(super) fn build(
    history: &History,
    functions: &dyn Functions,
    watch: &Watch<'_>,
) -> Result<Forest, Canceled> {
    let blocks = &history.flow.blocks;
    let mut rules = Rules::new(functions);
    let mut marks = history.marks().iter().peekable();
    let mut index = 0;
    let mut last = None;
    let paths = &history.flow.paths;
    let executed = history.flow.executions().iter().flat_map(|&path| paths.parts(path));
    for (number, &id) in executed.enumerate() {
        if number % REPORT_EVERY == 0 {
            watch.report(Stage::Forest, index, history.len())?;
        }
        let count = blocks.count(id);
        let (Some(first), Some(end)) = (
            blocks.instruction(id, 0),
            blocks.instruction(id, count.saturating_sub(1) as usize),
        ) else {
            continue;
        };
        let before = std::iter::from_fn(|| marks.next_if(|mark| mark.index <= index));
        rules.between(last, before, first.pc, index);
        index += count;
        last = Some(end);
    }
    if marks.any(|mark| matches!(mark.kind, MarkKind::Gap(_))) {
        rules.gap_at_end(index);
    }
    Ok(rules.finish(index))
}
