//! A cursor over the instructions of a history, in both directions.

use crate::Instruction;
use crate::history::{Flow, Place};

/// Stands between two instructions; each step is constant time on average.
///
/// As an [`Iterator`] it goes forward; [`Walker::prev`] goes backward.
#[derive(Clone, Debug)]
pub struct Walker<'a> {
    flow: &'a Flow,
    place: Place,
    index: u64,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(flow: &'a Flow, from: u64) -> Self {
        let end = Place {
            execution: flow.executions().len(),
            within: 0,
        };
        Self {
            flow,
            place: flow.place(from).unwrap_or(end),
            index: from.min(flow.len()),
        }
    }

    /// The index of the instruction that [`Iterator::next`] gives.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The instruction ahead, without a step.
    #[must_use]
    pub fn peek(&self) -> Option<Instruction> {
        self.flow.instruction(self.place)
    }

    /// Steps backward over an instruction.
    pub fn prev(&mut self) -> Option<Instruction> {
        let place = match self.place.within.checked_sub(1) {
            Some(within) => Place { within, ..self.place },
            None => {
                let execution = self.place.execution.checked_sub(1)?;
                let count = self.flow.paths.count(*self.flow.executions().get(execution)?);
                Place {
                    execution,
                    within: (count as usize).checked_sub(1)?,
                }
            }
        };
        let instruction = self.flow.instruction(place)?;
        self.place = place;
        self.index -= 1;
        Some(instruction)
    }
}

impl Iterator for Walker<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        let instruction = self.peek()?;
        self.index += 1;
        self.place.within += 1;
        let path = *self.flow.executions().get(self.place.execution)?;
        if self.place.within as u64 >= self.flow.paths.count(path) {
            self.place = Place {
                execution: self.place.execution + 1,
                within: 0,
            };
        }
        Some(instruction)
    }
}
