//! The threads that decode one trace.

use super::desk::{Desk, Done, Failed, Task};
use super::join::Joiner;
use super::tape::{Recorder, Tape};
use crate::engine::native::{Native, Stretch};
use crate::watch::Stage;
use crate::{Config, Memory, Watch};
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::thread;

/// Stretches that wait to be joined or are being decoded, for each thread.
const STRETCHES: usize = 3;

/// What the threads work on.
pub(crate) struct Crew<'a> {
    pub native: &'a Native,
    pub trace: &'a [u8],
    /// The code, which does not change.
    pub memory: &'a (dyn Memory + Sync),
    pub config: &'a Config,
    pub watch: &'a Watch<'a>,
    /// Bytes of other traces that are done, and of all.
    pub done: u64,
    pub total: u64,
}

impl Crew<'_> {
    /// Decodes the trace by so many threads, in stretches of `least` bytes at least.
    pub fn decode(&self, joiner: Joiner, jobs: NonZeroUsize, least: usize) -> Result<Joiner, Failed> {
        let stretches = self.native.stretches(self.trace, self.config, least);
        let desk = Desk::new(stretches.ok_or(Failed::Apart)?, joiner, jobs.get() * STRETCHES);
        thread::scope(|scope| {
            for engine in 1..jobs.get() {
                let desk = &desk;
                scope.spawn(move || self.work(engine, desk));
            }
            self.work(0, &desk);
        });
        desk.finish()
    }

    /// What one of the threads does.
    fn work<F: FnMut() -> Option<Stretch>>(&self, engine: usize, desk: &Desk<F>) {
        let _alarm = Alarm(desk);
        let tape = RefCell::new(Tape::default());
        let halted = || desk.is_halted() || self.watch.is_canceled();
        let mut recorder = Recorder::new(&tape, &halted);
        let decoder = self
            .native
            .decoder(self.trace, self.memory, self.config, &mut recorder);
        let Some(mut decoder) = decoder else {
            return desk.fail(Failed::Apart);
        };
        while let Some(task) = desk.next() {
            match task {
                Task::Join(mut joiner, done) => {
                    let offset = done.to.unwrap_or(self.trace.len()) as u64;
                    let reported = self.watch.report(Stage::Decode, self.done + offset, self.total);
                    if reported.is_err() {
                        return desk.fail(Failed::Canceled);
                    }
                    if !joiner.join(*done) {
                        return desk.fail(Failed::Apart);
                    }
                    desk.give_back(joiner);
                }
                Task::Decode(number, stretch) => match decoder(&stretch) {
                    Ok(ended) => desk.deliver(
                        number,
                        Done {
                            engine,
                            tape: tape.take(),
                            ended,
                            to: stretch.to,
                        },
                    ),
                    Err(_) => return desk.fail(Failed::Canceled),
                },
            }
        }
    }
}

/// Lets the other threads end when one panics, so that the panic is seen.
struct Alarm<'a, F: FnMut() -> Option<Stretch>>(&'a Desk<F>);

impl<F: FnMut() -> Option<Stretch>> Drop for Alarm<'_, F> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(Failed::Canceled);
        }
    }
}
