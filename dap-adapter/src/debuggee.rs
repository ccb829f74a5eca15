//! The open trace: the debugger with its position, and the numbers that the client received.

use crate::breakpoint_table::BreakpointTable;
use crate::call_list_cache::CallListCache;
use crate::failure::{Failure, Result};
use crate::handles::{FrameKey, Handles};
use crate::latency_cache::CachedLatencies;
use crate::sources::Sources;
use backtrail_debugger::session::Thread;
use backtrail_debugger::thread_at_time::{ThreadAtTime, thread_at_time};
use backtrail_debugger::{Error, Navigator};
use backtrail_decoder::{Position, Watch};
use backtrail_pt::Tid;
use tempfile::TempPath;

/// An open trace.
pub struct Debuggee {
    /// The debugger.
    pub navigator: Navigator,
    /// Numbers that the client has for frames and values.
    pub handles: Handles,
    /// Source files.
    pub sources: Sources,
    /// Which of the breakpoints the client set how.
    pub breakpoints: BreakpointTable,
    /// The position at which the session began.
    pub home: Position,
    /// The measured calls that were asked for last.
    pub latencies: Option<CachedLatencies>,
    /// Lists of calls that were asked for.
    pub call_lists: CallListCache,
    /// Keeps the downloaded file.
    pub _downloaded: Option<TempPath>,
}

/// The position of a thread, as seen from the current position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentPosition {
    /// Here.
    At(Position),
    /// Its history begins later.
    NotBegun,
    /// The trace has no time stamps to determine the position, so the last position is shown.
    LeftAt(Position),
}

impl Debuggee {
    /// The thread of a number that the client gave; none means the current one.
    ///
    /// # Errors
    /// When there is no such thread.
    pub fn tid(&self, number: Option<i64>) -> Result<Tid> {
        let Some(number) = number else {
            return Ok(self.navigator.position().tid());
        };
        let none = || Failure::Debugger(Error::NoThread(number.to_string()));
        let tid = Tid(u32::try_from(number).map_err(|_| none())?);
        self.navigator.session().thread(tid).map_err(|_| none())?;
        Ok(tid)
    }

    /// Returns the position of a thread: its own for the current thread, and by time for others.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn position_of(&mut self, tid: Tid, watch: &Watch<'_>) -> Result<CurrentPosition> {
        let now = self.navigator.with_earlier(watch, |navigator| {
            if navigator.position().tid() == tid {
                return Ok(CurrentPosition::At(navigator.position()));
            }
            let session = navigator.session();
            let there: &Thread = session.thread(tid)?;
            let at = thread_at_time(session, navigator.thread()?, navigator.index(), there)?;
            Ok(match at {
                ThreadAtTime::Between(index, _) => CurrentPosition::At(there.position(index)),
                ThreadAtTime::NotBegun => CurrentPosition::NotBegun,
                ThreadAtTime::Unknown => CurrentPosition::LeftAt(navigator.position_of(tid)),
            })
        });
        Ok(now?)
    }

    /// Makes a thread the current one, where it is now.
    ///
    /// # Errors
    /// When its history begins later; when canceled.
    pub fn select(&mut self, tid: Tid, watch: &Watch<'_>) -> Result<()> {
        if self.navigator.position().tid() == tid {
            return Ok(());
        }
        let there = self.standing(tid, watch)?;
        self.navigator.go_to(there.position)?;
        Ok(())
    }

    /// The innermost frame of a thread, where that is now.
    ///
    /// # Errors
    /// When its history begins later; when canceled.
    pub fn standing(&mut self, tid: Tid, watch: &Watch<'_>) -> Result<FrameKey> {
        match self.position_of(tid, watch)? {
            CurrentPosition::At(position) | CurrentPosition::LeftAt(position) => {
                Ok(FrameKey { position, number: 0 })
            }
            CurrentPosition::NotBegun => Err(Failure::Cannot(format!(
                "the history of thread {tid} begins later; `goto start` in that thread goes to its start"
            ))),
        }
    }

    /// Looks from a frame, and comes back.
    ///
    /// # Errors
    /// Those of `look`; when there is no such frame; when canceled.
    pub fn look_from<T>(
        &mut self,
        frame: FrameKey,
        watch: &Watch<'_>,
        mut look: impl FnMut(&mut Navigator) -> backtrail_debugger::Result<T>,
    ) -> Result<T> {
        if frame.number == FrameKey::NONE {
            return Err(Failure::Cannot("this stack entry is not a frame".to_owned()));
        }
        let tid = frame.position.tid();
        let looked = self.navigator.with_earlier(watch, |navigator| {
            let index = navigator.session().thread(tid)?.index_of(frame.position)?;
            navigator.visiting(tid, index, |navigator| {
                if frame.number > 0 {
                    navigator.select_frame(frame.number, watch)?;
                }
                look(navigator)
            })
        });
        Ok(looked?)
    }

    /// Does something in a frame, and stays where that goes, if it moves.
    ///
    /// # Errors
    /// Those of `act`; when there is no such frame; when canceled.
    pub fn go_from<T>(
        &mut self,
        frame: FrameKey,
        watch: &Watch<'_>,
        mut act: impl FnMut(&mut Navigator) -> backtrail_debugger::Result<T>,
    ) -> Result<T> {
        let tid = frame.position.tid();
        let done = self.navigator.with_earlier(watch, |navigator| {
            let index = navigator.session().thread(tid)?.index_of(frame.position)?;
            navigator.going_from(tid, index, |navigator| {
                if frame.number != navigator.selected_frame() {
                    navigator.select_frame(frame.number, watch)?;
                }
                act(navigator)
            })
        });
        Ok(done?)
    }

    /// The breakpoints that there are.
    #[must_use]
    pub fn numbers_of_breakpoints(&self) -> Vec<u32> {
        let all = self.navigator.breakpoints.all().iter();
        all.map(|known| known.number).collect()
    }

    /// The frame of a number; without one, the innermost of the current thread.
    ///
    /// # Errors
    /// When the number is of an earlier stop.
    pub fn frame(&self, number: Option<i64>) -> Result<FrameKey> {
        match number {
            Some(number) => self.handles.frame_of(number),
            None => Ok(FrameKey {
                position: self.navigator.position(),
                number: self.navigator.selected_frame(),
            }),
        }
    }
}
