//! A profile: samples, and the tables that they refer to.

use crate::Result;
use crate::branch_stack::BranchStack;
use crate::frame::{Frame, FrameId, Function, FunctionId, Line, Module, ModuleId, StringId};
use crate::sample::{Event, EventId, Label, LabelSet, LabelSetId, Sample, Thread, ThreadId, UnixNanos};
use crate::stacks::{StackId, Stacks};
use crate::table::Table;
use std::collections::HashMap;

/// Samples with their stacks. Texts, modules, frames, stacks and labels are stored once.
///
/// Frames are code addresses in modules. Lines are what is known of their symbols, which may come
/// later than the samples.
///
/// ```
/// use backtrail_profile::{Event, Frame, Profile, Sample, StackId};
///
/// let mut profile = Profile::default();
/// let event = profile.event("cpu", "nanoseconds", 10_000_000)?;
/// let function = profile.function("main")?;
/// let frame = profile.frames.intern(Frame::Function { function, line: 0 })?;
/// let stack = profile.stacks.push(StackId::EMPTY, frame)?;
/// profile.add(event, 10_000_000, stack)?;
/// assert_eq!(profile.total(event), 10_000_000);
/// # Ok::<(), backtrail_profile::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// All texts.
    pub strings: Table<StringId, Box<str>>,
    /// The files with code.
    pub modules: Table<ModuleId, Module>,
    /// The functions that lines and frames name.
    pub functions: Table<FunctionId, Function>,
    /// The frames.
    pub frames: Table<FrameId, Frame>,
    /// The lines of symbolized frames, the innermost inlined function first. No entry: not
    /// symbolized.
    pub lines: HashMap<FrameId, Box<[Line]>>,
    /// The stacks.
    pub stacks: Stacks<FrameId>,
    /// The event types.
    pub events: Table<EventId, Event>,
    /// The threads.
    pub threads: Table<ThreadId, Thread>,
    /// The sets of labels.
    pub label_sets: Table<LabelSetId, LabelSet>,
    /// The samples, in any order.
    pub samples: Vec<Sample>,
    /// The branches before samples, where the processor keeps them.
    pub branch_stacks: Vec<BranchStack>,
    /// The time at which the capture began.
    pub start: Option<UnixNanos>,
    /// The length of the capture in nanoseconds.
    pub duration: Option<u64>,
    /// Sentences for the reader, as about lost samples.
    pub notes: Vec<String>,
}

impl Profile {
    /// Returns the id of a text.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full), as all methods that add to a table.
    pub fn string(&mut self, text: &str) -> Result<StringId> {
        self.strings.intern_with(text, || text.into())
    }

    /// Returns a text. An id of another profile gives an empty text.
    #[must_use]
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id).map_or("", |text| text)
    }

    /// Returns the id of an event type. Its period becomes 0 if it is already known with another
    /// one.
    ///
    /// # Errors
    ///
    /// As [`Profile::string`].
    pub fn event(&mut self, name: &str, unit: &str, period: u64) -> Result<EventId> {
        let (name, unit) = (self.string(name)?, self.string(unit)?);
        self.intern_event(Event { name, unit, period })
    }

    /// Returns the same for an event with texts of this profile.
    ///
    /// # Errors
    ///
    /// As [`Profile::string`].
    pub fn intern_event(&mut self, event: Event) -> Result<EventId> {
        let id = self.events.intern(event.clone())?;
        if self
            .events
            .get(id)
            .is_some_and(|known| known.period != event.period)
        {
            self.events.replace(Event { period: 0, ..event });
        }
        Ok(id)
    }

    /// Returns the id of a function of which only the name is known.
    ///
    /// # Errors
    ///
    /// As [`Profile::string`].
    pub fn function(&mut self, name: &str) -> Result<FunctionId> {
        let name = self.string(name)?;
        self.functions.intern(Function {
            name,
            linkage_name: name,
            file: None,
            start_line: 0,
        })
    }

    /// Returns the id of a set of labels, in any order.
    ///
    /// # Errors
    ///
    /// As [`Profile::string`].
    pub fn label_set(&mut self, mut labels: Vec<Label>) -> Result<LabelSetId> {
        labels.sort_unstable();
        labels.dedup();
        self.label_sets.intern(labels.into())
    }

    /// Adds a sample without time, thread and labels.
    ///
    /// # Errors
    ///
    /// As [`Profile::string`].
    pub fn add(&mut self, event: EventId, weight: i64, stack: StackId) -> Result<()> {
        let labels = self.label_set(Vec::new())?;
        self.samples.push(Sample {
            event,
            weight,
            stack,
            time: None,
            thread: None,
            cpu: None,
            labels,
        });
        Ok(())
    }

    /// Returns the labels of a set.
    #[must_use]
    pub fn labels(&self, set: LabelSetId) -> &[Label] {
        self.label_sets.get(set).map_or(&[], |labels| labels)
    }

    /// Returns the sum of an event's weights. It saturates.
    #[must_use]
    pub fn total(&self, event: EventId) -> i64 {
        let samples = self.samples.iter().filter(|sample| sample.event == event);
        samples.fold(0, |sum, sample| sum.saturating_add(sample.weight))
    }

    /// Returns the lines of a frame, the innermost first. Empty: not symbolized.
    #[must_use]
    pub fn lines_of(&self, frame: FrameId) -> &[Line] {
        self.lines.get(&frame).map_or(&[], |lines| lines)
    }
}
