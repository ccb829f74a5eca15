//! Builds a call forest: walks a history path by path, and applies the forest's rules.

mod block_ends;
mod jump_watch;
mod path_summaries;
mod rules;
mod symbolic_stack;
#[cfg(test)]
mod tests;
mod transfers;

use super::code_sites::CodeSite;
use super::effects::EffectStore;
use super::index::Index;
use super::spans::{SPAN, Span};
use super::{Forest, Functions};
use crate::history::Flow;
use crate::watch::Stage;
use crate::{Canceled, History, Mark, PathIdx, PathTable, Version, Watch};
use path_summaries::PathSummaries;
use rules::{Rules, Source};
use std::sync::Arc;

/// Paths between two progress reports; a multiple of [`SPAN`].
const REPORT_EVERY: usize = 1 << 16;

pub(super) fn build(
    history: &History,
    functions: &dyn Functions,
    watch: &Watch<'_>,
) -> Result<Forest, Canceled> {
    let mut builder = Builder::new(functions);
    let (flow, marks) = (&history.flow, history.marks());
    let consumed = builder.feed(flow.executions(), flow.table(), marks, flow.len(), watch)?;
    Ok(builder.finish(Arc::clone(flow), marks.get(consumed..).unwrap_or(&[])))
}

/// A forest under construction, of a history that may still grow.
pub(crate) struct Builder<'a> {
    rules: Rules<'a>,
    summaries: PathSummaries,
    effects: EffectStore,
    spans: Vec<Span>,
    /// The last path executed; its successor is not known yet.
    last: Option<PathIdx>,
    /// The number of executions before it, and the index of its first instruction.
    execution: u64,
    index: u64,
}

impl<'a> Builder<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            rules: Rules::new(functions),
            summaries: PathSummaries::default(),
            effects: EffectStore::default(),
            spans: Vec::new(),
            last: None,
            execution: 0,
            index: 0,
        }
    }

    /// Continues with the `executed` paths of `table`, of a history of `total` instructions so far.
    /// `marks` are the marks not consumed yet, in order. Returns how many were consumed.
    pub fn feed(
        &mut self,
        executed: &[PathIdx],
        table: PathTable<'_>,
        marks: &[Mark],
        total: u64,
        watch: &Watch<'_>,
    ) -> Result<usize, Canceled> {
        let mut rest = marks;
        for part in executed.chunks(REPORT_EVERY) {
            watch.report(Stage::Forest, self.index, total)?;
            rest = self.execute(part, table, rest);
        }
        Ok(marks.len() - rest.len())
    }

    /// Handles executed paths. Returns the remaining marks.
    fn execute<'m>(&mut self, paths: &[PathIdx], table: PathTable<'_>, mut marks: &'m [Mark]) -> &'m [Mark] {
        let mut rest = paths;
        while let Some((&next, after)) = rest.split_first() {
            if self.summaries.of(next).is_unknown() {
                self.summaries
                    .define(next, table, &mut self.effects, &mut self.rules);
            }
            let Some(last) = self.last else {
                // The history starts.
                (self.last, rest) = (Some(next), after);
                continue;
            };
            let done = match self.execution {
                0 => 0,
                _ => self.execute_summarized(last, rest, next_mark(marks)),
            };
            if done > 0 {
                self.last = rest.get(done - 1).copied();
                rest = rest.get(done..).unwrap_or(&[]);
                continue;
            }
            marks = self.execute_by_rules(last, Some(next), table, marks);
            (self.last, rest) = (Some(next), after);
        }
        marks
    }

    /// Applies the summaries of the path `last` and the `paths` after it, as long as they apply and
    /// no mark follows. Returns how many were applied.
    fn execute_summarized(&mut self, last: PathIdx, paths: &[PathIdx], mark: u64) -> usize {
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

    /// Like [`Self::execute_summarized`], up to the end of a span.
    #[inline(never)]
    fn execute_span(&mut self, last: PathIdx, paths: &[PathIdx], mark: u64) -> usize {
        let Self {
            rules,
            summaries,
            effects,
            index,
            ..
        } = self;
        let (mut path, mut done, before) = (last, 0, self.execution);
        for &next in paths {
            let (summary, next_summary) = (summaries.of(path), summaries.of(next));
            let next_index = *index + u64::from(summary.count);
            if next_index >= mark || next_summary.is_unknown() {
                break;
            }
            let ran = summaries.apply(summary, next_summary, before + done as u64, effects, rules);
            if !ran {
                break;
            }
            done += 1;
            *index = next_index;
            path = next;
        }
        self.execution += done as u64;
        done
    }

    /// Executes a path transfer by transfer by the rules, with the marks before the next. Returns
    /// the remaining marks.
    #[cold]
    fn execute_by_rules<'m>(
        &mut self,
        path: PathIdx,
        next: Option<PathIdx>,
        table: PathTable<'_>,
        mut marks: &'m [Mark],
    ) -> &'m [Mark] {
        let Self {
            rules,
            summaries,
            effects,
            spans,
            ..
        } = self;
        if self.execution.is_multiple_of(SPAN as u64) {
            begin_span(spans, self.execution, rules);
        }
        rules.begin_log(self.execution, self.index);
        if self.execution == 0 {
            let version = version_of(path, table);
            marks = pass_marks(rules, None, summaries.first(path), self.index, version, marks);
        }
        let end = summaries.follow(path, table, self.index, rules);
        self.index += table.paths.count(path);
        if let Some((end, next)) = end.as_ref().zip(next) {
            let to = summaries.first(next);
            match next_mark(marks) > self.index {
                true => rules.transfer(end, to, self.index),
                false => {
                    let version = version_of(next, table);
                    marks = pass_marks(rules, Some(end), to, self.index, version, marks);
                }
            }
        } else {
            rules.end_history(end.as_ref(), marks, self.index);
        }
        effects.push_execution(self.execution, path, rules.end_log());
        self.execution += 1;
        marks
    }

    /// Completes the forest; `marks` are the last marks.
    pub fn finish(mut self, flow: Arc<Flow>, marks: &[Mark]) -> Forest {
        if let Some(last) = self.last {
            self.execute_by_rules(last, None, flow.table(), marks);
        }
        end_span(&mut self.spans, &mut self.rules);
        let (functions, began, log) = self.rules.finish();
        let index = Index::new(began, self.spans, self.effects, log);
        Forest::new(flow, index, functions)
    }
}

/// Returns the version of the code of a path's first block.
fn version_of(path: PathIdx, table: PathTable<'_>) -> Version {
    let first = table.paths.blocks(path).first();
    first.map_or(Version::default(), |&block| table.blocks.version(block))
}

/// Handles the marks before instruction `index` at `to`, or the start of the history. Returns the
/// remaining marks.
fn pass_marks<'m>(
    rules: &mut Rules<'_>,
    last: Option<&Source>,
    to: CodeSite,
    index: u64,
    version: Version,
    marks: &'m [Mark],
) -> &'m [Mark] {
    let before = marks.partition_point(|mark| mark.index <= index);
    let (passed, rest) = marks.split_at(before);
    rules.between(last, passed.iter(), to, index, version);
    rest
}

/// Starts a span with the next execution, unless it has started.
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

/// Ends the last span.
fn end_span(spans: &mut [Span], rules: &mut Rules<'_>) {
    if let Some(last) = spans.last_mut() {
        last.lowest = rules.take_lowest();
    }
}

/// Returns the index of the instruction after the next mark.
fn next_mark(marks: &[Mark]) -> u64 {
    marks.first().map_or(u64::MAX, |mark| mark.index)
}
