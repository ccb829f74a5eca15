//! The threads that decode one trace.

use super::desk::{Desk, Done, Failed, Task};
use super::join::Joiner;
use super::news::HandedOn;
use super::plant::Planter;
use super::tape::{Recorder, Tape};
use crate::engine::native::{Learnt, Native};
use crate::knowledge::Scope;
use crate::meter::Meter;
use crate::trace::Tail;
use crate::{Canceled, Config, Forest, Functions, History, HistoryBuilder, Image, Knowledge};
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

/// What the threads work on.
pub(crate) struct Crew<'a> {
    pub native: &'a Native,
    pub trace: Tail<'a>,
    /// The code, which does not change.
    pub image: &'a Arc<Image>,
    pub config: &'a Config,
    pub meter: &'a Meter<'a>,
}

impl Crew<'_> {
    /// The history of the trace by so many threads, in segments of `least` bytes at least, and with functions its forest.
    pub fn decode(
        &self,
        mut builder: HistoryBuilder,
        functions: Option<&dyn Functions>,
        knowledge: &Knowledge,
        jobs: NonZeroUsize,
        least: usize,
    ) -> Result<(History, Option<Forest>), Failed> {
        let scout = self
            .native
            .scout(self.trace.bytes, self.config, least)
            .ok_or(Failed::Apart)?;
        let reckoner = self.native.reckoner(self.config).ok_or(Failed::Apart)?;
        let learnt = knowledge.take_for(&self.scope(), jobs);
        builder.share(Learnt::in_common(&learnt));
        let joiner = Joiner::new(builder, reckoner, functions.is_some());
        let desk = Desk::new(scout, joiner, functions.map(Planter::new), jobs);
        let mut engines = learnt.into_iter().enumerate();
        let first = engines.next();
        thread::scope(|threads| {
            for (engine, learnt) in engines {
                let desk = &desk;
                threads.spawn(move || self.work(engine, desk, learnt, knowledge));
            }
            // This thread is the first.
            if let Some((engine, learnt)) = first {
                self.work(engine, &desk, learnt, knowledge);
            }
        });
        let (joiner, planter) = desk.finish()?;
        let history = joiner.finish();
        let forest = planter.map(|planter| planter.finish(&history));
        Ok((history, forest))
    }

    /// What one of the threads does.
    fn work(&self, engine: usize, desk: &Desk<'_, '_>, learnt: Learnt, knowledge: &Knowledge) {
        let _alarm = Alarm(desk);
        let tape = RefCell::new(Tape::default());
        let halted = || desk.is_halted() || self.meter.watch().is_canceled();
        let mut recorder = Recorder::new(&tape, self.trace.offset as u64, &halted);
        let image = &**self.image;
        let decoder = self
            .native
            .decoder(self.trace.bytes, image, self.config, &mut recorder, learnt);
        let Some(mut decoder) = decoder else {
            return desk.fail(Failed::Apart);
        };
        let mut handed_on = HandedOn::default();
        while let Some(task) = desk.next(engine == 0) {
            match task {
                Task::Plant(mut planter, growth) => match planter.plant(growth, self.meter.watch()) {
                    Ok(tape) => desk.put_back(planter, tape),
                    Err(failed) => return desk.fail(failed),
                },
                Task::Join(mut joiner, done) => {
                    let offset = done.to.unwrap_or(self.trace.bytes.len()) as u64;
                    let joined = joiner.join(*done);
                    match joined.and_then(|joined| self.report(offset).map(|()| joined)) {
                        Ok(joined) => desk.give_back(joiner, joined),
                        Err(failed) => return desk.fail(failed),
                    }
                }
                Task::Decode(number, segment, mut empty) => {
                    let notes = std::mem::take(&mut empty.notes);
                    tape.replace(empty);
                    let Ok((ended, notes)) = decoder.decode(&segment, notes) else {
                        return desk.fail(Failed::Canceled);
                    };
                    let mut tape = tape.take();
                    tape.notes = notes;
                    tape.news = Some(handed_on.take_news(&decoder.runs()));
                    let done = Done {
                        engine,
                        tape,
                        ended,
                        to: segment.to,
                    };
                    desk.deliver(number, done);
                }
            }
        }
        knowledge.keep(self.scope(), decoder.into_learnt());
    }

    fn scope(&self) -> Scope {
        Scope::of_process(self.image, self.config)
    }

    fn report(&self, offset: u64) -> Result<(), Failed> {
        self.meter.report(offset).map_err(|Canceled| Failed::Canceled)
    }
}

/// Lets the other threads end when one panics, so that the panic is seen.
struct Alarm<'a, 'j, 't>(&'a Desk<'j, 't>);

impl Drop for Alarm<'_, '_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(Failed::Canceled);
        }
    }
}
