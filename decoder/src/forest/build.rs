//! Walks a history, path by path, and tells what happens on the way by the forest's rules.

mod ends;
mod rules;
mod script;
#[cfg(test)]
mod tests;
mod trial;

use super::places::Place;
use super::{Forest, Functions};
use crate::history::Flow;
use crate::watch::Stage;
use crate::{Canceled, History, Mark, MarkKind, Watch};
use rules::{Rules, Source};
use script::Scripts;

/// Paths between two reports.
const REPORT_EVERY: usize = 1 << 16;

pub(super) fn build(
    history: &History,
    functions: &dyn Functions,
    watch: &Watch<'_>,
) -> Result<Forest, Canceled> {
    let mut builder = Builder::new(functions);
    builder.feed(&history.flow, history.marks(), watch)?;
    Ok(builder.finish(history.marks()))
}

/// A forest in the making, of a history that may still grow.
pub(crate) struct Builder<'a> {
    rules: Rules<'a>,
    scripts: Scripts,
    /// How many executions and marks of the history were consumed.
    executions: usize,
    marks: usize,
    /// Instructions of the executions consumed.
    index: u64,
    /// The instruction before it.
    last: Option<Source>,
}

impl<'a> Builder<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            rules: Rules::new(functions),
            scripts: Scripts::default(),
            executions: 0,
            marks: 0,
            index: 0,
            last: None,
        }
    }

    /// Goes on from the execution where it stopped to the last one that the history has.
    pub fn feed(&mut self, flow: &Flow, marks: &[Mark], watch: &Watch<'_>) -> Result<(), Canceled> {
        let executions = flow.executions().get(self.executions..).unwrap_or(&[]);
        for part in executions.chunks(REPORT_EVERY) {
            watch.report(Stage::Forest, self.index, flow.len())?;
            self.execute(part, flow, marks);
            self.executions += part.len();
        }
        Ok(())
    }

    /// Paths were executed.
    fn execute(&mut self, paths: &[u32], flow: &Flow, marks: &[Mark]) {
        let (mut index, mut last) = (self.index, self.last);
        let mut next_mark = self.next_mark(marks);
        for &path in paths {
            let Some(script) = self.scripts.of(path, flow, &mut self.rules) else {
                continue;
            };
            match &last {
                Some(last) if next_mark > index => self.rules.transfer(last, script.first, index),
                last => {
                    self.meet(last.as_ref(), script.first, index, marks);
                    next_mark = self.next_mark(marks);
                }
            }
            self.scripts.run(&script, path, flow, &mut self.rules, index);
            index += u64::from(script.count);
            last = Some(script.end);
        }
        (self.index, self.last) = (index, last);
    }

    /// The instruction that the next mark stands before.
    fn next_mark(&self, marks: &[Mark]) -> u64 {
        marks.get(self.marks).map_or(u64::MAX, |mark| mark.index)
    }

    /// Marks stand before the instruction at `to`, which has number `index`, or history begins there.
    #[cold]
    fn meet(&mut self, last: Option<&Source>, to: Place, index: u64, marks: &[Mark]) {
        let rest = marks.get(self.marks..).unwrap_or(&[]);
        let before = rest.partition_point(|mark| mark.index <= index);
        self.marks += before;
        self.rules.between(last, rest.iter().take(before), to, index);
    }

    /// All of the history was consumed.
    pub fn finish(mut self, marks: &[Mark]) -> Forest {
        let rest = marks.get(self.marks..).unwrap_or(&[]);
        if rest.iter().any(|mark| matches!(mark.kind, MarkKind::Gap(_))) {
            self.rules.gap_at_end(self.index);
        }
        self.rules.finish(self.index)
    }
}
