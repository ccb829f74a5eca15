//! The part of a recording to dump.

use crate::args::Dump;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use backtrail_debugger::Session;
use backtrail_debugger::session::Thread;
use backtrail_decoder::Position;
use backtrail_pt::Tid;

/// The requested part of a session.
pub(super) struct Range {
    pub(super) session: Session,
    pub(super) thread: Option<Tid>,
    from: Start,
    pub(super) count: u64,
}

/// The start of the output.
enum Start {
    Index(u64),
    Position(Position),
}

impl Range {
    pub(super) fn of(args: &Dump) -> Result<Self, Failure> {
        let (mut thread, mut from) = (args.thread.map(Tid), Start::Index(0));
        if let Some(text) = &args.from {
            if let Ok(position) = text.parse::<Position>() {
                if let Some(other) = thread.filter(|&tid| tid != position.tid()) {
                    return Err(Failure::usage(format_args!(
                        "--thread {other} and --from {text} name more than one thread"
                    )));
                }
                (thread, from) = (Some(position.tid()), Start::Position(position));
            } else {
                let index = text.parse().map_err(|_| {
                    Failure::usage(format_args!(
                        "--from {text}: not a position (t1#250) or an index (250)"
                    ))
                })?;
                from = Start::Index(index);
            }
        }
        let session = open::session(&args.bundle, &open::options(&args.decode), &Interrupt::install())?;
        if let Some(tid) = thread {
            session.thread(tid)?;
        }
        Ok(Self {
            session,
            thread,
            from,
            count: args.count.unwrap_or(u64::MAX),
        })
    }

    /// Returns the index in a thread's history where the output begins.
    pub(super) fn from(&self, thread: &Thread) -> Result<u64, Failure> {
        match self.from {
            Start::Index(index) => Ok(index),
            Start::Position(position) => Ok(thread.index_of(position)?),
        }
    }

    /// Returns the requested threads.
    pub(super) fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.session
            .threads()
            .iter()
            .filter(|thread| self.thread.is_none_or(|tid| tid == thread.tid))
    }
}
