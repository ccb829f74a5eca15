//! What the blocks of a path do to the open calls, found out once.

use super::ends::Ends;
use super::rules::{Rules, Source, Way};
use super::trial::{self, Trial};
use crate::forest::nodes::Stock;
use crate::forest::places::Place;
use crate::history::Flow;
use rustc_hash::FxHashMap;

/// A path as far as calls go.
#[derive(Clone, Copy)]
pub(super) struct Script {
    /// Its first instruction.
    pub first: Place,
    /// Its last one.
    pub end: Source,
    /// Its stretches in the list.
    first_stretch: u32,
    stretches: u32,
    /// Its instructions.
    pub count: u32,
}

/// Transfers of a path that change only what the innermost call has called, then one that changes more.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    /// They are so while the innermost call is of this function; [`Stretch::ANY`] ...
    pub home: u32,
    /// ... and no open call returns to these places.
    first_unexpected: u32,
    unexpected: u32,
    /// The calls that begin and end.
    first_call: u32,
    pub calls: u32,
    /// How deep they are inside of one another.
    deepest: u32,
    /// Transfers of the path before it.
    pub turns: u32,
    /// What ends it; `None`: the path.
    pub turn: Option<Turn>,
}

impl Stretch {
    /// The number of no function: it may be any.
    pub const ANY: u32 = Place::UNKNOWN - 1;
}

/// From one block of a path to the next.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub from: Source,
    pub to: Place,
    /// Instructions of the path before it.
    pub offset: u32,
}

impl Turn {
    fn jumps(&self) -> bool {
        matches!(self.from.way, Way::Conditional | Way::Jump | Way::IndirectJump)
    }

    /// It goes to the next instruction: nothing is called, nor left.
    pub fn falls(&self) -> bool {
        let falls = matches!(
            self.from.way,
            Way::Sequential | Way::Conditional | Way::Call | Way::IndirectCall
        );
        falls && self.from.next() == self.to.at
    }
}

/// The scripts of paths.
#[derive(Default)]
pub(super) struct Scripts {
    /// By path.
    scripts: Vec<Option<Script>>,
    stretches: Vec<Stretch>,
    unexpected: Vec<u32>,
    calls: Stock,
    /// All transfers of a path that does not always keep to its script.
    turns: FxHashMap<u32, Vec<Turn>>,
    trial: Trial,
    ends: Ends,
}

impl Scripts {
    /// The script of a path; `None`: it has no instruction.
    #[inline]
    pub fn of(&mut self, path: u32, flow: &Flow, rules: &mut Rules<'_>) -> Option<Script> {
        match self.scripts.get(path as usize) {
            Some(&Some(script)) => Some(script),
            _ => self.write(path, flow, rules),
        }
    }

    /// Goes over a path, whose first instruction has number `index`, by its script.
    #[inline]
    pub fn run(&mut self, script: &Script, path: u32, flow: &Flow, rules: &mut Rules<'_>, index: u64) {
        let first = script.first_stretch as usize;
        let stretches = self.stretches.get(first..first + script.stretches as usize);
        for stretch in stretches.unwrap_or(&[]) {
            if !self.holds(stretch, rules) {
                let turns = self
                    .turns
                    .entry(path)
                    .or_insert_with(|| all_turns(path, flow, rules, &mut self.ends));
                for turn in turns.get(stretch.turns as usize..).unwrap_or(&[]) {
                    rules.transfer(&turn.from, turn.to, index + u64::from(turn.offset));
                }
                return;
            }
            if stretch.calls > 0 {
                let calls = self
                    .calls
                    .get(stretch.first_call, stretch.calls, script.count, stretch.deepest);
                rules.append(&calls, index);
            }
            if let Some(turn) = &stretch.turn {
                rules.transfer(&turn.from, turn.to, index + u64::from(turn.offset));
            }
        }
    }

    /// What a stretch was found out under is so.
    #[inline]
    fn holds(&self, stretch: &Stretch, rules: &Rules<'_>) -> bool {
        let first = stretch.first_unexpected as usize;
        let unexpected = self.unexpected.get(first..first + stretch.unexpected as usize);
        let at_home = stretch.home == Stretch::ANY || rules.runs(stretch.home);
        at_home
            && !unexpected
                .unwrap_or(&[])
                .iter()
                .any(|&place| rules.expects(place))
    }

    #[cold]
    fn write(&mut self, path: u32, flow: &Flow, rules: &mut Rules<'_>) -> Option<Script> {
        let parts = flow.paths.parts(path);
        let (first, _) = self.ends.of(*parts.first()?, flow, rules)?;
        let (_, end) = self.ends.of(*parts.last()?, flow, rules)?;
        let turns = all_turns(path, flow, rules, &mut self.ends);
        let first_stretch = u32::try_from(self.stretches.len()).ok()?;
        self.write_stretches(first.function, &turns, rules)?;
        let script = Script {
            first,
            end,
            first_stretch,
            stretches: u32::try_from(self.stretches.len()).ok()? - first_stretch,
            count: u32::try_from(flow.paths.count(path)).ok()?,
        };
        let at = path as usize;
        if self.scripts.len() <= at {
            self.scripts.resize(flow.paths.len().max(at + 1), None);
        }
        *self.scripts.get_mut(at)? = Some(script);
        Some(script)
    }

    /// Divides the transfers of a path that begins in the function `home` into stretches.
    fn write_stretches(&mut self, mut home: u32, turns: &[Turn], rules: &mut Rules<'_>) -> Option<()> {
        let lengths = trial::lengths(turns);
        // Trials within trials that failed are to end.
        let mut patience = turns.len() * 4;
        let mut stretch = self.stretch(0)?;
        let mut at = 0;
        while let Some(turn) = turns.get(at) {
            let (next, rest) = (at + 1, turns.get(at..).unwrap_or(&[]));
            let len = lengths.get(at).copied().flatten().filter(|&len| len <= patience);
            if turn.falls() {
                at = next;
            } else if turn.jumps() && rules.stays(home, &turn.from, turn.to) {
                stretch.home = home;
                if turn.from.way == Way::IndirectJump {
                    self.unexpected.push(turn.to.id);
                }
                at = next;
            } else if len.is_some()
                && let Some(len) = self.trial.whole(rest, rules, &mut self.unexpected)
            {
                let calls = self.trial.calls();
                stretch.deepest = stretch.deepest.max(self.calls.add(calls, stretch.calls));
                stretch.calls += calls.len() as u32 - 1;
                at += len;
            } else {
                patience = patience.saturating_sub(len.unwrap_or(0));
                stretch.turn = Some(*turn);
                self.end(stretch)?;
                home = turn.to.function;
                stretch = self.stretch(next)?;
                at = next;
            }
        }
        self.end(stretch)
    }

    /// A stretch behind so many transfers.
    fn stretch(&self, turns: usize) -> Option<Stretch> {
        Some(Stretch {
            home: Stretch::ANY,
            first_unexpected: u32::try_from(self.unexpected.len()).ok()?,
            unexpected: 0,
            first_call: u32::try_from(self.calls.len()).ok()?,
            calls: 0,
            deepest: 0,
            turns: u32::try_from(turns).ok()?,
            turn: None,
        })
    }

    fn end(&mut self, mut stretch: Stretch) -> Option<()> {
        let mut unexpected = self.unexpected.split_off(stretch.first_unexpected as usize);
        unexpected.sort_unstable();
        unexpected.dedup();
        self.unexpected.append(&mut unexpected);
        let len = u32::try_from(self.unexpected.len()).ok()?;
        stretch.unexpected = len - stretch.first_unexpected;
        self.stretches.push(stretch);
        Some(())
    }
}

/// All transfers between the blocks of a path.
fn all_turns(path: u32, flow: &Flow, rules: &mut Rules<'_>, ends: &mut Ends) -> Vec<Turn> {
    let mut offset = 0;
    let mut turns = Vec::new();
    let mut last = None;
    for &block in flow.paths.parts(path) {
        let Some((first, end)) = ends.of(block, flow, rules) else {
            continue;
        };
        if let Some(from) = last.replace(end) {
            turns.push(Turn {
                from,
                to: first,
                offset,
            });
        }
        offset += flow.blocks.count(block) as u32;
    }
    turns
}
