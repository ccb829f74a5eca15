//! `backtrail dump`: a recording, item by item.

mod calls;
mod flow;
mod packets;

use crate::args::{Dump, DumpWhat};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use backtrail_debugger::Session;
use backtrail_debugger::session::Thread;
use backtrail_decoder::Position;
use backtrail_pt::Tid;

/// Prints what was asked for.
pub fn run(args: &Dump) -> Result<(), Failure> {
    let mut output = Output::new();
    match args.what {
        DumpWhat::Packets => packets::run(args, &mut output)?,
        DumpWhat::Instructions => flow::instructions(&Range::of(args)?, args, &mut output)?,
        DumpWhat::Blocks => flow::blocks(&Range::of(args)?, args, &mut output)?,
        DumpWhat::Calls => calls::run(&Range::of(args)?, args, &mut output)?,
    }
    output.finish()
}

/// Which part of a session is wanted.
struct Range {
    session: Session,
    thread: Option<Tid>,
    from: Begin,
    count: u64,
}

/// Where to begin.
enum Begin {
    Index(u64),
    Position(Position),
}

impl Range {
    fn of(args: &Dump) -> Result<Self, Failure> {
        let (mut thread, mut from) = (args.thread.map(Tid), Begin::Index(0));
        if let Some(text) = &args.from {
            if let Ok(position) = text.parse::<Position>() {
                if let Some(other) = thread.filter(|&tid| tid != position.tid()) {
                    return Err(Failure::usage(format_args!(
                        "--thread {other} and --from {text} name more than one thread"
                    )));
                }
                (thread, from) = (Some(position.tid()), Begin::Position(position));
            } else {
                let index = text.parse().map_err(|_| {
                    Failure::usage(format_args!(
                        "--from {text}: write a position, as t1#250, or an index, as 250"
                    ))
                })?;
                from = Begin::Index(index);
            }
        }
        let session = open::session(&args.bundle, &open::options(&args.decode)?, &Interrupt::install())?;
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

    /// The index in a thread's history to begin at.
    fn from(&self, thread: &Thread) -> Result<u64, Failure> {
        match self.from {
            Begin::Index(index) => Ok(index),
            Begin::Position(position) => Ok(thread.index_of(position)?),
        }
    }

    /// The threads asked for.
    fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.session
            .threads()
            .iter()
            .filter(|thread| self.thread.is_none_or(|tid| tid == thread.tid))
    }
}
