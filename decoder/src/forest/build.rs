//! Walks a history, path by path, and tells what happens on the way by the forest's rules.

mod ends;
mod phrases;
mod rules;
mod scene;
mod script;
#[cfg(test)]
mod tests;
mod trial;
mod turns;
mod unexpected;

use super::places::Place;
use super::{Forest, Functions, Room};
use crate::watch::Stage;
use crate::{Canceled, History, Mark, Runs, Watch};
use rules::{Rules, Source};
use script::{Course, Script, Scripts};

/// Paths between two reports.
const REPORT_EVERY: usize = 1 << 16;

pub(super) fn build(
    history: &History,
    functions: &dyn Functions,
    watch: &Watch<'_>,
) -> Result<Forest, Canceled> {
    let mut builder = Builder::new(functions);
    let (flow, marks) = (&history.flow, history.marks());
    let met = builder.feed(flow.executions(), flow.runs(), marks, flow.len(), watch)?;
    Ok(builder.finish(marks.get(met..).unwrap_or(&[])))
}

/// A forest in the making, of a history that may still grow.
pub(crate) struct Builder<'a> {
    rules: Rules<'a>,
    scripts: Scripts,
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
            index: 0,
            last: None,
        }
    }

    /// Goes by phrases as soon as there can be any.
    #[cfg(test)]
    fn make_phrases_at_once(&mut self) {
        self.scripts.make_phrases_at_once();
    }

    /// Takes memory from there.
    pub fn draw_from(&mut self, room: &Room) {
        self.rules.draw_from(room);
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
        let (mut index, mut last) = (self.index, self.last);
        let mut next_mark = next_mark(marks);
        // The path before went on to this one.
        let mut begun = false;
        let mut at = 0;
        loop {
            if begun {
                let rest = paths.get(at..).unwrap_or(&[]);
                let (done, behind) = self
                    .scripts
                    .run_lines(rest, runs, index, next_mark, &mut self.rules);
                (at, index) = (at + done, behind);
            }
            let Some(&path) = paths.get(at) else { break };
            at += 1;
            let Some(&Script {
                first, end, count, ..
            }) = self.scripts.of(path, runs, &mut self.rules)
            else {
                continue;
            };
            match &last {
                Some(_) if begun => {}
                Some(last) if next_mark > index => self.rules.transfer(last, first, index),
                last => {
                    marks = self.meet(last.as_ref(), first, index, marks);
                    next_mark = self::next_mark(marks);
                }
            }
            let behind = index + u64::from(count);
            let next = paths.get(at).filter(|_| next_mark > behind);
            let next = next.and_then(|&next| self.scripts.of(next, runs, &mut self.rules));
            let next = next.map(|next| next.first);
            let course = Course {
                path,
                runs,
                index,
                next,
            };
            begun = self.scripts.run(course, &mut self.rules);
            (index, last) = (behind, Some(end));
        }
        (self.index, self.last) = (index, last);
        marks
    }

    /// Marks stand before the instruction at `to`, which has number `index`, or history begins there. Gives those behind.
    #[cold]
    fn meet<'m>(&mut self, last: Option<&Source>, to: Place, index: u64, marks: &'m [Mark]) -> &'m [Mark] {
        let before = marks.partition_point(|mark| mark.index <= index);
        let (met, rest) = marks.split_at(before);
        self.rules.between(last, met.iter(), to, index);
        rest
    }

    /// All of the history was consumed, but for these marks.
    pub fn finish(mut self, marks: &[Mark]) -> Forest {
        self.rules.behind(self.last.as_ref(), marks, self.index);
        self.rules.finish(self.index)
    }
}

/// The instruction that the next mark stands before.
fn next_mark(marks: &[Mark]) -> u64 {
    marks.first().map_or(u64::MAX, |mark| mark.index)
}
