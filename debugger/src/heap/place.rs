//! The place of a heap event: the line of the user's own code that made the call.

use super::calls::HeapCall;
use crate::error::Result;
use crate::own_code::CodeOrigin;
use crate::session::{Session, Thread};
use crate::stack::without_parameters;
use crate::time::{Time, nanos};
use backtrail_decoder::{Forest, Version, Watch};
use backtrail_pt::Avma;
use backtrail_symbolizer::{Frame, Symbolizer};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::fmt;
use std::rc::Rc;

/// The maximum number of calls between an allocator function and own code.
const MAX_DEPTH: usize = 200;

/// The place of a heap event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeapPlace {
    /// The allocator function: `malloc`, `operator delete`.
    pub by: String,
    /// The thread.
    pub thread: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The position before the first instruction of the allocator function; absent: only the time
    /// is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Two positions of the thread; the call began between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<[String; 2]>,
    /// The innermost function of own code that led to the call, or else the caller.
    pub function: Option<String>,
    /// The file of the line there.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Nanoseconds from the crash, of a call that the collector noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<i64>,
}

impl HeapPlace {
    /// Returns the position or the interval of positions, and the time: `t7#12, −3 ms`, or `between
    /// t7#10 and t7#20, −3 ms`.
    #[must_use]
    pub fn moment(&self) -> String {
        let position = match (&self.position, &self.between) {
            (Some(position), _) => Some(position.clone()),
            (None, Some([from, to])) => Some(format!("between {from} and {to}")),
            (None, None) => None,
        };
        let time = self.time.map(|time| time.to_string()).or(self.ns.map(nanos));
        let parts: Vec<String> = position.into_iter().chain(time).collect();
        parts.join(", ")
    }
}

impl fmt::Display for HeapPlace {
    /// Writes `reaper at dispatch.cpp:135`, with the name of the function.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function.as_deref().map(without_parameters);
        f.write_str(function.unwrap_or("unknown code"))?;
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, " at {}:{line}", crate::source::short(file))?;
        }
        Ok(())
    }
}

/// The line of own code that led to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CallSite {
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// Returns the place of a call of an allocator function.
///
/// # Errors
///
/// When canceled.
pub fn place(session: &Session, thread: &Thread, call: &HeapCall, watch: &Watch<'_>) -> Result<HeapPlace> {
    let forest = session.forest(thread, watch)?;
    let site = CallSites::new(session).find(thread, forest, call.index);
    let CallSite { function, file, line } = site.as_deref().cloned().unwrap_or_default();
    Ok(HeapPlace {
        by: call.function.name().to_owned(),
        thread: thread.tid.0,
        name: thread.name.clone(),
        position: Some(thread.position(call.index).to_string()),
        between: None,
        function,
        file,
        line,
        time: thread
            .history
            .time(call.index)
            .map(|time| session.times().time(time)),
        ns: None,
    })
}

/// The line of an address, and whether it is own code.
type KnownLine = Option<(Rc<CallSite>, bool)>;

/// Finds call sites, and remembers the lines of their addresses.
pub(super) struct CallSites<'a> {
    session: &'a Session,
    known: FxHashMap<(Avma, Version), KnownLine>,
}

impl<'a> CallSites<'a> {
    pub(super) fn new(session: &'a Session) -> Self {
        Self {
            session,
            known: FxHashMap::default(),
        }
    }

    /// Returns the innermost line of own code on the stack before instruction `index`. Without own
    /// code, returns the innermost known caller.
    pub(super) fn find(&mut self, thread: &Thread, forest: &Forest, index: u64) -> Option<Rc<CallSite>> {
        let innermost = forest.call_at(index)?;
        let mut other = None;
        for call in forest.ancestors(innermost).take(MAX_DEPTH) {
            // The call instruction of the caller, or its jump.
            let Some(by) = forest.call(call).first.checked_sub(1) else {
                break;
            };
            match self.line_of(thread, by) {
                Some((site, true)) => return Some(site),
                Some((site, false)) => other = other.or(Some(site)),
                None => {}
            }
        }
        other
    }

    fn line_of(&mut self, thread: &Thread, index: u64) -> Option<(Rc<CallSite>, bool)> {
        let pc = thread.history.pc(index)?;
        let key = (pc, thread.history.version(index));
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = line_at(self.session, thread, index, pc);
        self.known.insert(key, found.clone());
        found
    }
}

/// Returns the innermost own line at an address, or else the innermost line.
fn line_at(session: &Session, thread: &Thread, index: u64, pc: Avma) -> Option<(Rc<CallSite>, bool)> {
    line_in(session.symbols_at(thread, index)?, pc)
}

/// Returns the innermost own line at an address by these symbols, or else the innermost line, and
/// whether it is own code.
pub(super) fn line_in(symbols: &Symbolizer, pc: Avma) -> Option<(Rc<CallSite>, bool)> {
    let module = symbols.module_at(pc).map(|module| &*module.name);
    let frames = symbols.frames_at(pc);
    let is_own = |frame: &&Frame<Avma>| {
        let library = CodeOrigin::of(Some(frame), module).library();
        // The procedure linkage table is no code of the user.
        library.is_none() && !frame.function.ends_with("@plt")
    };
    match frames.iter().find(is_own) {
        Some(frame) => Some((Rc::new(site(frame)), true)),
        None => frames.first().map(|frame| (Rc::new(site(frame)), false)),
    }
}

fn site(frame: &Frame<Avma>) -> CallSite {
    let location = frame.location.as_ref();
    CallSite {
        function: Some(frame.function.to_string()),
        file: location.map(|location| location.file.to_string()),
        line: location.map(|location| location.line),
    }
}
