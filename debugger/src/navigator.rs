//! The navigator: a session, a position in it, and what the user set.

mod all_threads;
mod at_crash;
mod breakpoints;
mod earlier;
mod library;
mod locate;
mod panics;
mod register_watch;
mod run;
mod threads;
mod visit;
mod watchpoints;

use crate::breakpoint::{Breakpoints, UndecidedHits};
use crate::disassembly::Flavor;
use crate::error::{Error, Result};
use crate::heap::recorded_calls::RecordedCalls;
use crate::own_code::CodeOrigin;
use crate::session::{Process, Session, Thread};
use crate::skip::SkipList;
use crate::source::{BundledSources, SourceFinder};
use crate::source_names::SourceNames;
use crate::stack::{self, Stack};
use crate::stop::StopReason;
use crate::watchpoint::UnseenAccesses;
use backtrail_bundle::sources::BundledSource;
use backtrail_decoder::{Position, Version, Watch};
use backtrail_pt::{Avma, Tid};
use backtrail_symbolizer::Symbolizer;
use backtrail_values::{ELEMENTS, Value};
use serde::Serialize;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
pub use threads::HistoryEdge;
pub(crate) use watchpoints::write_place;
pub use watchpoints::{HistoryRow, WritePlace, WriteView};

/// The columns of an answer where there is no terminal.
const WIDTH: usize = 100;

/// A move that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// From where.
    pub from: Position,
    /// To where.
    pub to: Position,
    /// The reason of the stop.
    pub reason: StopReason,
    /// A gap on the way: why history is missing there.
    pub crossed_gap: Option<String>,
    /// Hits that were passed because their condition was unknown.
    pub undecided: Option<UndecidedHits>,
    /// Places on the way at which accesses to watched memory may have gone unseen.
    pub unseen: Option<UnseenAccesses>,
    /// Hits of other threads that may have come before this one on the way.
    pub unordered: Vec<UnorderedHit>,
    /// If the move ended at an edge of the history: all hits of the breakpoints.
    pub elsewhere: Vec<HitsElsewhere>,
}

/// A hit whose order with the hit of a stop is open. Conditions are not checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnorderedHit {
    /// The number of the breakpoint.
    pub breakpoint: u32,
    /// The thread.
    pub thread: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The position.
    pub position: String,
}

/// The hits of all breakpoints in one thread. Conditions are not checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HitsElsewhere {
    /// The thread.
    pub thread: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The count.
    pub hits: u64,
    /// The position of the first.
    pub first: String,
    /// The position of the last.
    pub last: String,
}

/// Which arguments a stack shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameArguments {
    /// None of them.
    None,
    /// Numbers and pointers; of others that there are some.
    #[default]
    Scalars,
    /// All of them.
    All,
}

/// Moves in a session: positions and every verb. It knows no terminal and no protocol.
pub struct Navigator {
    session: Session,
    current: Tid,
    positions: BTreeMap<Tid, u64>,
    frame: usize,
    undone: Vec<Position>,
    done: Vec<Position>,
    /// The breakpoints.
    pub breakpoints: Breakpoints,
    /// Positions that the user named.
    pub bookmarks: BTreeMap<String, Position>,
    /// The directories of source files.
    pub sources: SourceFinder,
    /// The collector's records at calls of the histories.
    recorded_calls: RecordedCalls,
    /// The names of source files, once they were needed.
    source_names: OnceCell<SourceNames>,
    /// The syntax of disassembly.
    pub flavor: Flavor,
    /// The file and line at which `list` continues.
    pub listed: Option<(String, u32)>,
    /// The expressions that are displayed after each move.
    pub displays: Vec<Display>,
    /// Records are shown with a line for each member.
    pub pretty: bool,
    /// The number of elements that are shown of a string or an array.
    pub elements: usize,
    /// Which arguments a stack shows.
    pub frame_arguments: FrameArguments,
    /// `continue` stays in the current thread.
    pub scheduler_locking: bool,
    /// Steps pass over library code.
    pub just_my_code: bool,
    /// The other code that steps pass over.
    pub skips: SkipList,
    /// The width of the terminal, or of another view, in columns.
    pub width: usize,
    /// Output longer than a terminal goes to a pager, where there is a terminal.
    pub pager: bool,
    /// The value history, `$1` first.
    pub printed: Vec<Value>,
}

/// An expression that is shown after each move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Display {
    /// Its number.
    pub number: u32,
    /// The format letters after the slash, or nothing.
    pub format: String,
    /// The expression.
    pub expression: String,
}

fn thread_name(thread: u32, name: Option<&str>) -> String {
    name.map_or_else(
        || format!("thread {thread}"),
        |name| format!("thread {thread} \"{name}\""),
    )
}

impl fmt::Display for UnorderedHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = thread_name(self.thread, self.name.as_deref());
        write!(
            f,
            "Breakpoint {} at {} in {thread}: the time stamps do not tell which of the two ran first.",
            self.breakpoint, self.position
        )
    }
}

impl fmt::Display for HitsElsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = thread_name(self.thread, self.name.as_deref());
        match self.hits {
            1 => write!(f, "1 hit in {thread}, at {}", self.first),
            hits => write!(
                f,
                "{hits} hits in {thread}, first {}, last {}",
                self.first, self.last
            ),
        }
    }
}

impl Navigator {
    /// Returns a navigator at the crash, or at the end of the history that ends last.
    ///
    /// # Errors
    ///
    /// If the session has no thread.
    pub fn new(session: Session) -> Result<Self> {
        let main = session.main_thread().map(|thread| thread.tid);
        let current = main.ok_or_else(|| Error::NoThreads(session.name().to_owned()))?;
        let positions = session
            .threads()
            .iter()
            .map(|thread| (thread.tid, thread.history.len()))
            .collect();
        let mut directories = session.source_paths().to_vec();
        directories.push(session.root().to_owned());
        directories.push(session.root().join("sources"));
        let bundled = session.bundle().map(BundledSources::of).transpose()?;
        Ok(Self {
            session,
            current,
            positions,
            frame: 0,
            undone: Vec::new(),
            done: Vec::new(),
            breakpoints: Breakpoints::default(),
            bookmarks: BTreeMap::new(),
            sources: SourceFinder {
                directories,
                bundled: bundled.unwrap_or_default(),
                ..SourceFinder::default()
            },
            recorded_calls: RecordedCalls::default(),
            source_names: OnceCell::new(),
            flavor: Flavor::default(),
            listed: None,
            displays: Vec::new(),
            pretty: false,
            elements: ELEMENTS,
            frame_arguments: FrameArguments::default(),
            scheduler_locking: false,
            just_my_code: true,
            skips: SkipList::default(),
            width: WIDTH,
            pager: true,
            printed: Vec::new(),
        })
    }

    /// From here on text of source files is read in the bundle and in the folders alone that the
    /// user named.
    pub fn bound_sources(&mut self) {
        let mut readable = self.session.source_paths().to_vec();
        // The folder of a core may hold anything.
        readable.extend(self.session.bundle().map(|bundle| bundle.root().to_owned()));
        self.sources.readable = Some(readable);
    }

    /// Returns the entry of the bundle's list for a source file whose text is the bundle's.
    #[must_use]
    pub fn bundled_source(&self, file: &str) -> Option<BundledSource> {
        self.sources.bundled_source(file).cloned()
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The current position.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position_of(self.current)
    }

    /// The index of the current position in the current thread.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index_of(self.current)
    }

    /// The current thread.
    ///
    /// # Errors
    /// Never, as long as the session has threads.
    pub fn thread(&self) -> Result<&Thread> {
        self.session.thread(self.current)
    }

    /// The process of the current thread.
    ///
    /// # Errors
    /// When the trace describes none.
    pub fn process(&self) -> Result<&Process> {
        self.process_of(self.thread()?)
    }

    /// The process of a thread.
    fn process_of(&self, thread: &Thread) -> Result<&Process> {
        self.session.process(thread).ok_or_else(|| {
            Error::Cannot("the trace describes no process: it has no code and no symbols".to_owned())
        })
    }

    /// Returns the version of the code at the current position.
    ///
    /// # Errors
    /// As with [`Self::thread`].
    pub fn version(&self) -> Result<Version> {
        Ok(self.thread()?.history.version(self.index()))
    }

    /// Returns the symbols of the modules that were mapped at the current position.
    ///
    /// # Errors
    /// As with [`Self::process`].
    pub fn symbols(&self) -> Result<&Arc<Symbolizer>> {
        let symbols = self.session.symbols_at(self.thread()?, self.index());
        symbols.map_or_else(|| Ok(&self.process()?.symbols), Ok)
    }

    /// Returns the program counter of the current thread, if known.
    #[must_use]
    pub fn pc(&self) -> Option<Avma> {
        stack::pc_at(&self.session, self.thread().ok()?, self.index())
    }

    /// The current thread is at the end of its history.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.thread()
            .is_ok_and(|thread| self.index() >= thread.history.len())
    }

    /// The number of the selected frame.
    #[must_use]
    pub fn selected_frame(&self) -> usize {
        self.frame
    }

    /// Selects a frame.
    ///
    /// # Errors
    /// When the stack is not that deep.
    pub fn select_frame(&mut self, number: usize, watch: &Watch<'_>) -> Result<()> {
        let known = self.stack(number.saturating_add(1), watch)?.frames.len();
        if number >= known {
            return Err(Error::Cannot(format!(
                "the stack has {known} known frame{}, 0 being the innermost; `backtrace` shows them",
                if known == 1 { "" } else { "s" }
            )));
        }
        self.frame = number;
        self.listed = None;
        Ok(())
    }

    /// Returns the stack at the current position, at most `limit` frames.
    ///
    /// # Errors
    ///
    /// If further frames depend on history that is not decoded yet; when canceled.
    pub fn stack(&self, limit: usize, watch: &Watch<'_>) -> Result<Stack> {
        self.known_stack(limit, watch)?.complete()
    }

    /// Returns the stack as far as the decoded history determines it.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn known_stack(&self, limit: usize, watch: &Watch<'_>) -> Result<Stack> {
        let mut stack = stack::stack(&self.session, self.thread()?, self.index(), limit, watch)?;
        for frame in &mut stack.frames {
            frame.library = self.library_of(&CodeOrigin::from(&*frame));
        }
        Ok(stack)
    }

    /// Moves anywhere.
    ///
    /// # Errors
    /// When there is no such thread, or its history is shorter.
    pub fn go_to(&mut self, position: Position) -> Result<Stop> {
        let index = self.session.thread(position.tid())?.index_of(position)?;
        let from = self.position();
        if (position.tid(), index) != (self.current, self.index()) {
            self.done.push(from);
            self.undone.clear();
        }
        Ok(self.stand_at(position.tid(), index))
    }

    /// Undoes the last move.
    ///
    /// # Errors
    /// When nothing moved.
    pub fn back(&mut self) -> Result<Stop> {
        let nothing = || Error::Cannot("there is no move to undo".to_owned());
        let to = self.done.pop().ok_or_else(nothing)?;
        self.undone.push(self.position());
        let index = self.session.thread(to.tid())?.index_of(to)?;
        Ok(self.stand_at(to.tid(), index))
    }

    /// Redoes the last move that was undone.
    ///
    /// # Errors
    /// When nothing was undone.
    pub fn forward(&mut self) -> Result<Stop> {
        let nothing = || Error::Cannot("there is no move to redo".to_owned());
        let to = self.undone.pop().ok_or_else(nothing)?;
        self.done.push(self.position());
        let index = self.session.thread(to.tid())?.index_of(to)?;
        Ok(self.stand_at(to.tid(), index))
    }

    /// Calls `look` as if standing elsewhere; for views of another place.
    pub fn looking_from<T>(&mut self, tid: Tid, index: u64, look: impl FnOnce(&Self) -> T) -> T {
        let (current, frame) = (self.current, self.frame);
        let left_at = self.positions.insert(tid, index);
        self.current = tid;
        self.frame = 0;
        let seen = look(self);
        if let Some(left_at) = left_at {
            self.positions.insert(tid, left_at);
        }
        (self.current, self.frame) = (current, frame);
        seen
    }

    /// Moves without remembering from where.
    fn stand_at(&mut self, tid: Tid, index: u64) -> Stop {
        let from = self.position();
        self.current = tid;
        self.positions.insert(tid, index);
        self.frame = 0;
        self.listed = None;
        Stop {
            from,
            to: self.position(),
            reason: StopReason::Done,
            crossed_gap: None,
            undecided: None,
            unseen: None,
            unordered: Vec::new(),
            elsewhere: Vec::new(),
        }
    }

    /// Returns the last position of a thread, or the end of its history.
    #[must_use]
    pub fn position_of(&self, tid: Tid) -> Position {
        let index = self.index_of(tid);
        let thread = self.session.thread(tid);
        thread.map_or(Position::new(tid, index), |thread| thread.position(index))
    }

    /// The index of it.
    #[must_use]
    pub fn index_of(&self, tid: Tid) -> u64 {
        self.positions.get(&tid).copied().unwrap_or(0)
    }
}
