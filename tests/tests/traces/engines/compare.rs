//! What an engine says of a trace, and where two engines say different things.

use crate::engines::assembler::Segment;
use crate::engines::encode::Trace;
use backtrail_decoder::{Config, Engine, Event, GapCause, Image, Section, Sink};
use backtrail_pt::{Avma, Cofi};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};

/// One thing that an engine pushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Instruction {
        at: Avma,
        len: u8,
        cofi: Cofi,
    },
    Event(Event),
    /// It panicked.
    Panic(String),
}

/// How much must be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Instructions, and where flow is lost, with an error or without.
    Flow,
    /// All events but times, too. Not how far the trace was read when packets or flow were lost, and not
    /// where the thread was at a decode error: engines read ahead by more or less. Nor the events between
    /// the last instruction and a decode error: libipt drops one that it has when it fails to get the
    /// next. Nor a change of flow that one of them tells coarsely. And never the words of an error.
    Events,
    /// [`Self::Events`], these places, and these events.
    Offsets,
    /// [`Self::Events`], and times as far as they are news.
    Times,
    /// All of it.
    All,
}

impl Level {
    pub const ALL: [Self; 5] = [Self::Flow, Self::Events, Self::Offsets, Self::Times, Self::All];

    fn has_places(self) -> bool {
        matches!(self, Self::Offsets | Self::All)
    }

    fn has_times(self) -> bool {
        matches!(self, Self::Times | Self::All)
    }

    /// What of an item must be the same; `None`: nothing.
    fn see(self, item: &Item) -> Option<Item> {
        let event = match item {
            &Item::Instruction { at, len, .. } if self == Self::Flow => {
                let cofi = Cofi::Sequential;
                return Some(Item::Instruction { at, len, cofi });
            }
            Item::Instruction { .. } | Item::Panic(_) => return Some(item.clone()),
            Item::Event(event) => event,
        };
        let event = match event {
            Event::Lost { cause, .. } if self == Self::Flow => Event::Lost {
                cause: match cause.is_decode_error() {
                    true => GapCause::Corrupt {
                        error: String::new(),
                        at: None,
                    },
                    false => GapCause::Start,
                },
                offset: 0,
            },
            _ if self == Self::Flow => return None,
            Event::Time(_) if !self.has_times() => return None,
            Event::Lost { cause, offset } => Event::Lost {
                cause: match cause {
                    GapCause::Corrupt { at, .. } => GapCause::Corrupt {
                        error: String::new(),
                        at: at.filter(|_| self.has_places()),
                    },
                    other => other.clone(),
                },
                offset: if self.has_places() { *offset } else { 0 },
            },
            Event::Overflow { .. } if !self.has_places() => Event::Overflow { offset: 0 },
            other => other.clone(),
        };
        Some(Item::Event(event))
    }
}

/// All that an engine pushed.
#[derive(Debug, Default)]
pub struct Recording {
    pub items: Vec<Item>,
    /// It went on after [`LIMIT`].
    pub full: bool,
}

/// Spoiled code can run in circles: so many items are compared.
const LIMIT: usize = 1 << 20;

impl Sink for Recording {
    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.push(Item::Instruction { at, len, cofi });
    }

    fn event(&mut self, event: Event) {
        self.push(Item::Event(event));
    }

    fn progress(&mut self, _: u64) -> ControlFlow<()> {
        if self.full {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl Recording {
    /// What the engine says of the trace.
    pub fn of(engine: &dyn Engine, trace: &Trace) -> Self {
        Self::of_parts(engine, &trace.bytes, &image(&trace.code), &trace.config)
    }

    pub fn of_parts(engine: &dyn Engine, bytes: &[u8], image: &Image, config: &Config) -> Self {
        let mut recording = Self::default();
        let decode = || engine.decode(bytes, image, config, &mut recording);
        // It is canceled when it is full only.
        let result = without_message(decode);
        if let Err(panic) = result {
            recording.items.push(Item::Panic(panic));
        }
        recording
    }

    fn push(&mut self, item: Item) {
        if self.items.len() < LIMIT {
            self.items.push(item);
        } else {
            self.full = true;
        }
    }

    /// The address of each instruction.
    pub fn pcs(&self) -> Vec<u64> {
        let pc = |item: &Item| match item {
            Item::Instruction { at, .. } => Some(at.0),
            Item::Event(_) | Item::Panic(_) => None,
        };
        self.items.iter().filter_map(pc).collect()
    }

    /// How often flow was lost.
    pub fn losses(&self) -> usize {
        let lost = |item: &&Item| matches!(item, Item::Event(Event::Lost { .. }));
        self.items.iter().filter(lost).count()
    }

    /// What must be the same, with where it stands in [`Self::items`].
    fn seen(&self, level: Level) -> Vec<(usize, Item)> {
        let before_errors = self.before_errors();
        let mut seen: Vec<(usize, Item)> = Vec::new();
        let mut told = None;
        for (at, item) in self.items.iter().enumerate() {
            if !level.has_places() && before_errors[at] {
                continue;
            }
            let Some(item) = level.see(item) else { continue };
            if let Item::Event(Event::Time(stamp)) = item
                && level == Level::Times
            {
                // A repeated time adds nothing, and of two times in a row only the later counts.
                if told == Some(stamp) {
                    continue;
                }
                told = Some(stamp);
                seen.pop_if(|(_, last)| matches!(last, Item::Event(Event::Time(_))));
            }
            seen.push((at, item));
        }
        seen
    }

    /// For each item, whether it is an event between the last instruction and a decode error.
    fn before_errors(&self) -> Vec<bool> {
        let mut before = false;
        let tell = |item: &Item| {
            before = match item {
                Item::Event(Event::Lost { cause, .. }) => {
                    before = cause.is_decode_error();
                    return false;
                }
                Item::Event(Event::Sync { .. }) | Item::Instruction { .. } | Item::Panic(_) => false,
                Item::Event(_) => before,
            };
            before
        };
        let mut hidden: Vec<bool> = self.items.iter().rev().map(tell).collect();
        hidden.reverse();
        hidden
    }
}

thread_local! {
    /// A panic of this thread is told by its catcher.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Does something, and gives what it says when it panics, instead of printing that.
fn without_message<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                others(panic);
            }
        }));
    });
    CAUGHT.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(false);
    result.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |text| (*text).to_owned()),
    })
}

/// The code of a trace.
pub fn image(code: &[Segment]) -> Image {
    let mut image = Image::new();
    for Segment { start, bytes } in code {
        image.add(Section {
            start: Avma(*start),
            bytes: Arc::new(bytes.clone()),
        });
    }
    image
}

/// Of code that is not 64-bit, and of jumps with odd prefixes, libipt tells only a coarse change of flow.
fn same(left: &Item, right: &Item, level: Level) -> bool {
    let (Item::Instruction { cofi: one, .. }, Item::Instruction { cofi: other, .. }) = (left, right) else {
        return left == right;
    };
    let alike = *one == coarse(*other) || coarse(*one) == *other;
    let exact = |item: &Item| match *item {
        Item::Instruction { at, len, .. } => Some((at, len)),
        _ => None,
    };
    left == right || level != Level::All && alike && exact(left) == exact(right)
}

fn coarse(cofi: Cofi) -> Cofi {
    match cofi {
        Cofi::Jump { .. } | Cofi::Conditional { .. } => Cofi::IndirectJump,
        Cofi::Call { .. } => Cofi::IndirectCall,
        other => other,
    }
}

/// Where two recordings differ first: the places in their items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    pub first: usize,
    pub second: usize,
}

/// Compares recordings.
pub fn difference(first: &Recording, second: &Recording, level: Level) -> Option<Difference> {
    let [mut left, mut right] = [first, second].map(|recording| recording.seen(level).into_iter());
    loop {
        let end = |recording: &Recording| recording.items.len();
        let (left, right) = match (left.next(), right.next()) {
            (None, None) => return None,
            (Some((_, left)), Some((_, right))) if same(&left, &right, level) => continue,
            (left, right) => (left, right),
        };
        // The fuller a recording is, the earlier it ends: what follows is not known.
        if (left.is_none() && first.full) || (right.is_none() && second.full) {
            return None;
        }
        return Some(Difference {
            first: left.map_or(end(first), |(at, _)| at),
            second: right.map_or(end(second), |(at, _)| at),
        });
    }
}
