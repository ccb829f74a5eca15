//! Walks a history, path by path, and tells what happens on the way by the forest's rules.

mod rules;
mod script;

use super::{Forest, Functions};
use crate::watch::Stage;
use crate::{Canceled, History, MarkKind, Watch};
use rules::Rules;
use script::{Scripts, all_turns};

/// Paths between two reports.
const REPORT_EVERY: usize = 1 << 16;

pub(super) fn build(
    history: &History,
    functions: &dyn Functions,
    watch: &Watch<'_>,
) -> Result<Forest, Canceled> {
    let flow = &history.flow;
    let mut rules = Rules::new(functions);
    let mut scripts = Scripts::default();
    let mut marks = history.marks().iter().peekable();
    let mut next_mark = marks.peek().map_or(u64::MAX, |mark| mark.index);
    let mut index = 0;
    let mut last = None;
    for (number, &path) in flow.executions().iter().enumerate() {
        if number % REPORT_EVERY == 0 {
            watch.report(Stage::Forest, index, history.len())?;
        }
        let Some(here) = scripts.of(path, flow, &mut rules) else {
            continue;
        };
        let Some(script) = scripts.get(here) else { continue };
        let from = last.and_then(|last| scripts.get(last)).map(|last| &last.end);
        match from {
            Some(from) if next_mark > index => rules.transfer(from, script.first, index),
            _ => {
                let before = std::iter::from_fn(|| marks.next_if(|mark| mark.index <= index));
                rules.between(from, before, script.first, index);
                next_mark = marks.peek().map_or(u64::MAX, |mark| mark.index);
            }
        }
        if script.complete || rules.runs(script.home) {
            for turn in scripts.turns(script) {
                rules.transfer(&turn.from, turn.to, index + u64::from(turn.offset));
            }
        } else {
            for turn in all_turns(path, flow, &mut rules) {
                rules.transfer(&turn.from, turn.to, index + u64::from(turn.offset));
            }
        }
        index += u64::from(script.count);
        last = Some(here);
    }
    if marks.any(|mark| matches!(mark.kind, MarkKind::Gap(_))) {
        rules.gap_at_end(index);
    }
    Ok(rules.finish(index))
}
