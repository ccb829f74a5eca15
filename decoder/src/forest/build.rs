//! Walks a history, path by path, and tells what happens on the way by the forest's rules.

mod ends;
mod rules;
mod script;
#[cfg(test)]
mod tests;
mod trial;
mod turns;
mod unexpected;

use super::effects::Effects;
use super::index::Index;
use super::places::Place;
use super::spans::{SPAN, Span};
use super::{Forest, Functions};
use crate::history::Flow;
use crate::watch::Stage;
use crate::{Canceled, History, Mark, Runs, Watch};
use rules::{Rules, Source};
use script::Scripts;
use std::sync::Arc;

/// Paths between two reports; a multiple of [`SPAN`].
const REPORT_EVERY: usize = 1 << 16;

pub(super) fn build(
    history: &History,
    functions: &dyn Functions,
    watch: &Watch<'_>,
) -> Result<Forest, Canceled> {
    let mut builder = Builder::new(functions);
    let (flow, marks) = (&history.flow, history.marks());
    let met = builder.feed(flow.executions(), flow.runs(), marks, flow.len(), watch)?;
    Ok(builder.finish(Arc::clone(flow), marks.get(met..).unwrap_or(&[])))
}

/// A forest in the making, of a history that may still grow.
pub(crate) struct Builder<'a> {
    rules: Rules<'a>,
    scripts: Scripts,
    effects: Effects,
    spans: Vec<Span>,
    /// The path that was executed last, what it goes on to is not known yet.
    last: Option<u32>,
    /// Executions before it, and the number of its first instruction.
    execution: u64,
    index: u64,
}

impl<'a> Builder<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            rules: Rules::new(functions),
            scripts: Scripts::default(),
            effects: Effects::default(),
            spans: Vec::new(),
            last: None,
            execution: 0,
            index: 0,
        }
    }

    /// Goes on: `executed` are the paths of `runs` that follow, of a history of `total` instructions; `marks` are those that were
    /// not met yet, in order. Says how many of them were met.
    pub fn feed(
        &mut self,
        executed: &[u32],
        runs: Runs<'_>,
        marks: &[Mark],
        total: u64,
        watch: &Watch<'_>,
    ) -> Result<usize, Canceled> {
        let mut rest = marks;
        for part in executed.chunks(REPORT_EVERY) {
            watch.report(Stage::Forest, self.index, total)?;
            rest = self.execute(part, runs, rest);
        }
        Ok(marks.len() - rest.len())
    }

    /// Paths were executed; gives the marks that are still to come.
    fn execute<'m>(&mut self, paths: &[u32], runs: Runs<'_>, mut marks: &'m [Mark]) -> &'m [Mark] {
        let mut rest = paths;
        while let Some((&next, behind)) = rest.split_first() {
            if self.scripts.of(next).is_unknown() {
                self.scripts.meet(next, runs, &mut self.effects, &mut self.rules);
            }
            let Some(last) = self.last else {
                // History begins.
                (self.last, rest) = (Some(next), behind);
                continue;
            };
            let done = match self.execution {
                0 => 0,
                _ => self.execute_known(last, rest, next_mark(marks)),
            };
            if done > 0 {
                self.last = rest.get(done - 1).copied();
                rest = rest.get(done..).unwrap_or(&[]);
                continue;
            }
            marks = self.execute_slowly(last, Some(next), runs, marks);
            (self.last, rest) = (Some(next), behind);
        }
        marks
    }

    /// The path `last` and the `paths` behind it, as long as they were met, do what is known of them, and no mark comes. Gives how
    /// many did.
    fn execute_known(&mut self, last: u32, paths: &[u32], mark: u64) -> usize {
        let (mut path, mut done) = (last, 0);
        while !self.rules.is_full() {
            if self.execution.is_multiple_of(SPAN as u64) {
                begin_span(&mut self.spans, self.execution, &mut self.rules);
            }
            let of_span = SPAN - self.execution as usize % SPAN;
            let rest = paths.get(done..).unwrap_or(&[]);
            let part = rest.get(..of_span).unwrap_or(rest);
            let ran = self.execute_span(path, part, mark);
            done += ran;
            if ran < of_span {
                break;
            }
            path = part.last().copied().unwrap_or(path);
        }
        done
    }

    /// The same, to the end of a span at most.
    #[inline(never)]
    fn execute_span(&mut self, last: u32, paths: &[u32], mark: u64) -> usize {
        let Self {
            rules,
            scripts,
            effects,
            index,
            ..
        } = self;
        let (mut path, mut done, before) = (last, 0, self.execution);
        for &next in paths {
            let (act, onward) = (scripts.of(path), scripts.of(next));
            let behind = *index + u64::from(act.count);
            if behind >= mark || onward.is_unknown() {
                break;
            }
            let ran = scripts.run(act, onward, before + done as u64, effects, rules);
            if !ran {
                break;
            }
            done += 1;
            *index = behind;
            path = next;
        }
        self.execution += done as u64;
        done
    }

    /// The execution of a path, transfer by transfer, with what stands between it and the next; gives the marks that are
    /// still to come.
    #[cold]
    fn execute_slowly<'m>(
        &mut self,
        path: u32,
        next: Option<u32>,
        runs: Runs<'_>,
        mut marks: &'m [Mark],
    ) -> &'m [Mark] {
        let Self {
            rules,
            scripts,
            effects,
            spans,
            ..
        } = self;
        if self.execution.is_multiple_of(SPAN as u64) {
            begin_span(spans, self.execution, rules);
        }
        rules.begin_log(self.execution, self.index);
        if self.execution == 0 {
            marks = meet(rules, None, scripts.first(path), self.index, marks);
        }
        let end = scripts.follow(path, runs, self.index, rules);
        self.index += runs.paths.count(path);
        if let Some((end, next)) = end.as_ref().zip(next) {
            let to = scripts.first(next);
            match next_mark(marks) > self.index {
                true => rules.transfer(end, to, self.index),
                false => marks = meet(rules, Some(end), to, self.index, marks),
            }
        } else {
            rules.behind(end.as_ref(), marks, self.index);
        }
        effects.keep(self.execution, path, rules.end_log());
        self.execution += 1;
        marks
    }

    /// All of the history was consumed, but for these marks.
    pub fn finish(mut self, flow: Arc<Flow>, marks: &[Mark]) -> Forest {
        if let Some(last) = self.last {
            self.execute_slowly(last, None, flow.runs(), marks);
        }
        end_span(&mut self.spans, &mut self.rules);
        let (functions, began, log) = self.rules.finish();
        let index = Index::new(began, self.spans, self.effects, log);
        Forest::new(flow, index, functions)
    }
}

/// Marks stand before the instruction at `to`, which has number `index`, or history begins there. Gives those behind.
fn meet<'m>(
    rules: &mut Rules<'_>,
    last: Option<&Source>,
    to: Place,
    index: u64,
    marks: &'m [Mark],
) -> &'m [Mark] {
    let before = marks.partition_point(|mark| mark.index <= index);
    let (met, rest) = marks.split_at(before);
    rules.between(last, met.iter(), to, index);
    rest
}

/// The execution that comes next is the first of a span, which may have begun already.
fn begin_span(spans: &mut Vec<Span>, execution: u64, rules: &mut Rules<'_>) {
    if spans.len() as u64 * SPAN as u64 > execution {
        return;
    }
    end_span(spans, rules);
    let depth = rules.take_lowest();
    spans.push(Span {
        began: rules.began(),
        depth,
        lowest: depth,
    });
}

/// The last span is over.
fn end_span(spans: &mut [Span], rules: &mut Rules<'_>) {
    if let Some(last) = spans.last_mut() {
        last.lowest = rules.take_lowest();
    }
}

/// The instruction that the next mark stands before.
fn next_mark(marks: &[Mark]) -> u64 {
    marks.first().map_or(u64::MAX, |mark| mark.index)
}
