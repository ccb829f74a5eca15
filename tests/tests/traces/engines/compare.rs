//! The recorded output of an engine for a trace, and the first difference of two outputs.

use crate::engines::assembler::Segment;
use crate::engines::encode::Trace;
use backtrail_decoder::{Config, Engine, Event, GapCause, Image, Section, Sink};
use backtrail_pt::{Avma, Cofi};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};

/// One output of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Instruction {
        at: Avma,
        len: u8,
        cofi: Cofi,
    },
    Event(Event),
    /// The engine panicked.
    Panic(String),
}

/// The level of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Instructions and losses of flow, with or without an error.
    Flow,
    /// All events except times. Excluded are the read offset where packets or flow were lost, and
    /// the thread's address at a decode error, because engines read ahead differently. Also
    /// excluded are events between the last instruction and a decode error: libipt drops a pending
    /// event when it fails to get the next. A change of flow that one engine reports coarsely, and
    /// the text of an error, are excluded too.
    Events,
    /// [`Self::Events`] with the excluded offsets, addresses and events.
    Offsets,
    /// [`Self::Events`], and times where they change.
    Times,
    /// Everything.
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

    /// Returns the compared part of an item, or `None`.
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

/// All output of an engine.
#[derive(Debug, Default)]
pub struct Recording {
    pub items: Vec<Item>,
    /// Whether the engine continued after [`LIMIT`].
    pub full: bool,
}

/// The maximum number of compared items, because corrupted code can loop forever.
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
    /// Runs the engine on the trace.
    pub fn of(engine: &dyn Engine, trace: &Trace) -> Self {
        Self::of_parts(engine, &trace.bytes, &image(&trace.code), &trace.config)
    }

    pub fn of_parts(engine: &dyn Engine, bytes: &[u8], image: &Image, config: &Config) -> Self {
        let mut recording = Self::default();
        let decode = || engine.decode(bytes, image, config, &mut recording);
        // Only a full recording cancels the engine.
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

    /// Returns the address of each instruction.
    pub fn pcs(&self) -> Vec<u64> {
        let pc = |item: &Item| match item {
            Item::Instruction { at, .. } => Some(at.0),
            Item::Event(_) | Item::Panic(_) => None,
        };
        self.items.iter().filter_map(pc).collect()
    }

    /// Returns the number of losses of flow.
    pub fn losses(&self) -> usize {
        let lost = |item: &&Item| matches!(item, Item::Event(Event::Lost { .. }));
        self.items.iter().filter(lost).count()
    }

    /// Returns the compared items, with their indexes in [`Self::items`].
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
                // A repeated time adds nothing, and only the last of consecutive times counts.
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

    /// Returns, for each item, whether it is an event between the last instruction and a decode
    /// error.
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
    /// Whether `without_message` reports panics of this thread.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, and returns its panic message instead of printing it.
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

/// Returns the code of a trace.
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

/// Returns whether two items agree. For code that is not 64-bit and for jumps with odd prefixes,
/// libipt reports only a coarse change of flow.
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

/// The indexes of the first difference between two recordings.
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
        // A full recording ends early, and the rest is unknown.
        if (left.is_none() && first.full) || (right.is_none() && second.full) {
            return None;
        }
        return Some(Difference {
            first: left.map_or(end(first), |(at, _)| at),
            second: right.map_or(end(second), |(at, _)| at),
        });
    }
}
