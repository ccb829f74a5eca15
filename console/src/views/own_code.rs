//! The last calls and lines of own code, for the first screen.

use crate::output::HistoryStep;
use backtrail_debugger::Result;
use backtrail_debugger::calls::{CallView, Calls};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::own_code::CodeOrigin;
use backtrail_debugger::session::Thread;
use backtrail_debugger::step::Direction;
use backtrail_decoder::{CallId, Forest, Watch};
use backtrail_pt::Avma;

/// The number of calls or lines of libraries that a search passes before it ends.
const MAX_PASSED: usize = 100_000;

/// The end of own code in the current thread.
struct OwnEnd<'a> {
    navigator: &'a Navigator,
    thread: &'a Thread,
    forest: &'a Forest,
    /// The index after its last instruction.
    index: u64,
}

impl<'a> OwnEnd<'a> {
    /// Returns the end of own code before the current position; `None`: no call on the stack is
    /// own code.
    ///
    /// # Errors
    ///
    /// If it may be in history that is not decoded yet; when canceled.
    fn find(navigator: &'a Navigator, watch: &Watch<'_>) -> Result<Option<Self>> {
        let thread = navigator.thread()?;
        let forest = navigator.session().forest(thread, watch)?;
        let mut end = Self {
            navigator,
            thread,
            forest,
            index: navigator.index(),
        };
        let Some(innermost) = forest.call_at(end.index) else {
            return Ok(None);
        };
        for call in forest.ancestors(innermost) {
            if end.is_own(call) {
                return Ok(Some(end));
            }
            end.index = forest.call(call).first;
        }
        thread.needs_beginning()?;
        Ok(None)
    }

    /// Returns whether a call is one of own code.
    fn is_own(&self, id: CallId) -> bool {
        let call = self.forest.call(id);
        // The outermost of inlined functions is the function that was called.
        self.is_own_at(call.function, call.first, true)
    }

    fn is_own_at(&self, pc: Avma, index: u64, outermost: bool) -> bool {
        let Some(symbols) = self.navigator.session().symbols_at(self.thread, index) else {
            return true;
        };
        let mut frames = symbols.frames_at(pc).into_iter();
        let frame = if outermost {
            frames.next_back()
        } else {
            frames.next()
        };
        let module = symbols.module_at(pc).map(|module| &*module.name);
        let origin = CodeOrigin::of(frame.as_ref(), module);
        self.navigator.library_of(&origin).is_none()
    }

    /// Returns where the library's code around instruction `index` began: the first instruction of
    /// the outermost of its calls that own code made. `None`: the instruction is own code.
    fn library_begin(&self, index: u64) -> Option<u64> {
        let innermost = self.forest.call_at(index)?;
        let mut begin = None;
        for call in self.forest.ancestors(innermost) {
            if self.is_own(call) {
                break;
            }
            begin = Some(self.forest.call(call).first);
        }
        begin
    }
}

/// Returns the calls of own code that began last, oldest first.
///
/// # Errors
///
/// If one may have begun in history that is not decoded yet; when canceled.
pub fn last_own_calls(navigator: &Navigator, count: usize, watch: &Watch<'_>) -> Result<Vec<CallView>> {
    let Some(end) = OwnEnd::find(navigator, watch)? else {
        return Ok(Vec::new());
    };
    let calls = Calls::new(navigator.session(), end.thread, watch)?;
    let last = end.forest.last_begun(end.index);
    let before = (0..last.map_or(0, |last| last.number() + 1)).rev();
    let ids = before.filter_map(|number| end.forest.id(number)).take(MAX_PASSED);
    let mut found = Vec::new();
    for id in ids.filter(|&id| end.is_own(id)).take(count) {
        found.push(calls.view(id, 0)?);
    }
    found.reverse();
    Ok(found)
}

/// Returns the lines of own code that ran last, oldest first.
///
/// # Errors
///
/// If one may have run in history that is not decoded yet; when canceled.
pub fn last_own_lines(navigator: &Navigator, count: usize, watch: &Watch<'_>) -> Result<Vec<HistoryStep>> {
    let Some(end) = OwnEnd::find(navigator, watch)? else {
        return Ok(Vec::new());
    };
    let mut starts = Vec::new();
    navigator.with_steps(watch, |steps| {
        let mut at = end.index;
        for _ in 0..MAX_PASSED {
            if starts.len() >= count {
                break;
            }
            let limit = steps.limit(Direction::Backward, at);
            let Some(start) = steps.lines.previous_start(at, limit)? else {
                if limit == 0 {
                    end.thread.needs_beginning()?;
                }
                break;
            };
            if start == 0 {
                end.thread.needs_beginning()?;
            }
            if let Some(begin) = end.library_begin(start) {
                at = begin;
                continue;
            }
            let pc = end.thread.history.pc(start);
            if pc.is_some_and(|pc| end.is_own_at(pc, start, false)) {
                starts.push(start);
            }
            at = start;
        }
        Ok(())
    })?;
    starts.reverse();
    let steps = starts.into_iter();
    let steps = steps.map(|start| super::history_step(navigator, end.thread, start, watch));
    steps.map(|step| step.map(|(step, _)| step)).collect()
}
