//! Walks a history, path by path, and tells what happens on the way by the forest's rules.

mod ends;
mod rules;
mod script;
mod trial;

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
            for &path in part {
                self.execute(path, flow, marks);
            }
            self.executions += part.len();
        }
        Ok(())
    }

    /// A path was executed.
    #[inline]
    fn execute(&mut self, path: u32, flow: &Flow, marks: &[Mark]) {
        let index = self.index;
        let Some(script) = self.scripts.of(path, flow, &mut self.rules) else {
            return;
        };
        let next_mark = marks.get(self.marks).map_or(u64::MAX, |mark| mark.index);
        match &self.last {
            Some(last) if next_mark > index => self.rules.transfer(last, script.first, index),
            last => {
                let rest = marks.get(self.marks..).unwrap_or(&[]);
                let before = rest.partition_point(|mark| mark.index <= index);
                self.marks += before;
                let before = rest.iter().take(before);
                self.rules.between(last.as_ref(), before, script.first, index);
            }
        }
        self.scripts.run(&script, path, flow, &mut self.rules, index);
        self.index += u64::from(script.count);
        self.last = Some(script.end);
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
