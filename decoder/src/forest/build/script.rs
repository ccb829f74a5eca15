//! What the blocks of a path do to the open calls, found out once.

use super::rules::{Rules, Source, Way};
use crate::forest::places::Place;
use crate::history::Flow;

/// A path as far as calls go.
pub(super) struct Script {
    /// Its first instruction.
    pub first: Place,
    /// Its last one.
    pub end: Source,
    /// Its transfers in the list, those left out that change nothing ...
    first_turn: u32,
    turns: u32,
    /// ... while the innermost call is of this function, or, when `complete`, of any.
    pub home: u32,
    pub complete: bool,
    pub count: u32,
}

/// From one block of a path to the next.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub from: Source,
    pub to: Place,
    /// Instructions of the path before it.
    pub offset: u32,
}

/// The scripts of paths.
#[derive(Default)]
pub(super) struct Scripts {
    /// The number of a path's script, by the path's; [`NONE`].
    of_paths: Vec<u32>,
    scripts: Vec<Script>,
    turns: Vec<Turn>,
}

const NONE: u32 = u32::MAX;

impl Scripts {
    /// The number of the script of a path; `None`: it has no instruction.
    #[inline]
    pub fn of(&mut self, path: u32, flow: &Flow, rules: &mut Rules<'_>) -> Option<u32> {
        match self.of_paths.get(path as usize) {
            Some(&script) if script != NONE => Some(script),
            _ => self.write(path, flow, rules),
        }
    }

    #[inline]
    pub fn get(&self, script: u32) -> Option<&Script> {
        self.scripts.get(script as usize)
    }

    /// Its transfers.
    #[inline]
    pub fn turns(&self, script: &Script) -> &[Turn] {
        let first = script.first_turn as usize;
        self.turns
            .get(first..first + script.turns as usize)
            .unwrap_or(&[])
    }

    #[cold]
    fn write(&mut self, path: u32, flow: &Flow, rules: &mut Rules<'_>) -> Option<u32> {
        let mut turns = all_turns(path, flow, rules);
        let parts = flow.paths.parts(path);
        let first = rules.places.of(flow.blocks.get(*parts.first()?)?.start);
        let end = rules.source(last_of(*parts.last()?, flow)?);
        let home = first.function;
        let complete = keep_what_matters(&mut turns, home, rules);
        let script = Script {
            first,
            end,
            first_turn: u32::try_from(self.turns.len()).ok()?,
            turns: turns.len() as u32,
            home,
            complete,
            count: u32::try_from(flow.paths.count(path)).ok()?,
        };
        self.turns.extend(turns);
        let number = u32::try_from(self.scripts.len()).ok()?;
        self.scripts.push(script);
        let at = path as usize;
        if self.of_paths.len() <= at {
            self.of_paths.resize(flow.paths.len().max(at + 1), NONE);
        }
        *self.of_paths.get_mut(at)? = number;
        Some(number)
    }
}

/// All transfers between the blocks of a path.
pub(super) fn all_turns(path: u32, flow: &Flow, rules: &mut Rules<'_>) -> Vec<Turn> {
    let mut offset = 0;
    let mut turns = Vec::new();
    for pair in flow.paths.parts(path).windows(2) {
        let &[from, to] = pair else { continue };
        offset += flow.blocks.count(from) as u32;
        let (Some(last), Some(next)) = (last_of(from, flow), flow.blocks.get(to)) else {
            continue;
        };
        turns.push(Turn {
            from: rules.source(last),
            to: rules.places.of(next.start),
            offset,
        });
    }
    turns
}

fn last_of(block: u32, flow: &Flow) -> Option<crate::Instruction> {
    let count = flow.blocks.code(block).len();
    flow.blocks.instruction(block, count.checked_sub(1)?)
}

/// Leaves out what changes nothing while the innermost call is of the function `home`, and of the functions
/// called from there. Says whether it changes nothing in any.
fn keep_what_matters(turns: &mut Vec<Turn>, home: u32, rules: &Rules<'_>) -> bool {
    // The functions of the calls on the way, and where each returns to; at `home` that is not known.
    let mut functions = vec![(home, Place::UNKNOWN)];
    let mut lost = false;
    let mut complete = true;
    turns.retain(|turn| {
        let (here, back) = functions.last().copied().unwrap_or((home, Place::UNKNOWN));
        let to = turn.to;
        let falls = turn.from.next() == to.at;
        match turn.from.way {
            Way::Sequential | Way::Conditional | Way::Call if falls => return false,
            Way::Conditional | Way::Jump if !lost && rules.places.contains(here, to.at) => {
                complete = false;
                return false;
            }
            Way::Call => functions.push((to.function, turn.from.behind)),
            Way::Return if to.id == back => drop(functions.pop()),
            _ => lost = true,
        }
        true
    });
    complete
}
