//! What the blocks of a path do to the open calls, found out once.

use super::ends::Ends;
use super::rules::{Rules, Source, Way};
use super::trial::Trial;
use crate::Runs;
use crate::forest::nodes::Stock;
use crate::forest::places::Place;
use crate::forest::stack::Open;
use rustc_hash::FxHashMap;

/// A path as far as calls go.
#[derive(Clone, Copy)]
pub(super) struct Script {
    /// Its first instruction.
    pub first: Place,
    /// Its last one.
    pub end: Source,
    /// Its instructions.
    pub count: u32,
    /// Where it has no stretches, it changes nothing while the innermost call is of this function;
    /// [`Stretch::ANY`].
    home: u32,
    /// Its stretches in the list.
    first_stretch: u32,
    stretches: u32,
}

/// Transfers of a path that change only what the innermost call has called, then one that may change more.
#[derive(Clone, Copy)]
struct Stretch {
    /// They are so while the innermost call is of this function; [`Stretch::ANY`] ...
    home: u32,
    /// ... and no open call returns to these places.
    first_unexpected: u32,
    /// The first `suspect` of these places are those that some call returns to, when `returns` such places were known.
    returns: u32,
    /// The calls that begin, and those of them that stay open.
    first_call: u32,
    first_open: u32,
    unexpected: u16,
    suspect: u16,
    calls: u16,
    open: u16,
    /// How deep the calls are inside of one another.
    deepest: u16,
    /// Instructions of the path before its first transfer; those of earlier stretches have fewer.
    begin: u32,
    /// What ends it; `None`: the path, or that it is long.
    turn: Option<Turn>,
}

impl Stretch {
    /// The number of no function: it may be any.
    const ANY: u32 = Place::UNKNOWN - 1;
    /// With so many calls or places it is long. It has at most [`Trial::LONGEST`] more.
    const LONG: u16 = 1 << 14;
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
    /// By path.
    scripts: Vec<Option<Script>>,
    stretches: Vec<Stretch>,
    unexpected: Vec<u32>,
    calls: Stock,
    open: Vec<Open>,
    /// All transfers of a path that does not always keep to its script.
    turns: FxHashMap<u32, Vec<Turn>>,
    trial: Trial,
    ends: Ends,
    /// The transfers of the path that a script is written for.
    written: Vec<Turn>,
}

impl Scripts {
    /// The script of a path; `None`: it has no instruction.
    #[inline]
    pub fn of(&mut self, path: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<Script> {
        match self.scripts.get(path as usize) {
            Some(&Some(script)) => Some(script),
            _ => self.write(path, runs, rules),
        }
    }

    /// Goes over a path, whose first instruction has number `index`, by its script.
    #[inline]
    pub fn run(&mut self, script: &Script, path: u32, runs: Runs<'_>, rules: &mut Rules<'_>, index: u64) {
        if script.stretches > 0 {
            self.run_stretches(script, path, runs, rules, index);
        } else if script.home != Stretch::ANY && !rules.runs(script.home) {
            self.follow(path, 0, runs, rules, index);
        }
    }

    fn run_stretches(
        &mut self,
        script: &Script,
        path: u32,
        runs: Runs<'_>,
        rules: &mut Rules<'_>,
        index: u64,
    ) {
        // No instruction begins more than one call.
        if !rules.has_room(script.count) {
            return self.follow(path, 0, runs, rules, index);
        }
        let first = script.first_stretch as usize;
        let stretches = self.stretches.get_mut(first..first + script.stretches as usize);
        for stretch in stretches.unwrap_or(&mut []) {
            if !stretch.holds(&mut self.unexpected, rules) {
                let begin = stretch.begin;
                return self.follow(path, begin, runs, rules, index);
            }
            if stretch.calls > 0 {
                let calls = self.calls.get(
                    stretch.first_call,
                    stretch.calls.into(),
                    script.count,
                    stretch.deepest.into(),
                );
                let first = stretch.first_open as usize;
                let open = self.open.get(first..first + usize::from(stretch.open));
                rules.append(&calls, open.unwrap_or(&[]), index);
            }
            if let Some(turn) = &stretch.turn {
                rules.transfer(&turn.from, turn.to, index + u64::from(turn.offset));
            }
        }
    }

    /// Goes over a path by its transfers, but those before which it has less than `begin` instructions.
    #[cold]
    fn follow(&mut self, path: u32, begin: u32, runs: Runs<'_>, rules: &mut Rules<'_>, index: u64) {
        let turns = self.turns.entry(path).or_insert_with(|| {
            let mut turns = Vec::new();
            all_turns(path, runs, rules, &mut self.ends, &mut turns);
            turns
        });
        let from = turns.partition_point(|turn| turn.offset < begin);
        for turn in turns.get(from..).unwrap_or(&[]) {
            rules.transfer(&turn.from, turn.to, index + u64::from(turn.offset));
        }
    }

    #[cold]
    fn write(&mut self, path: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<Script> {
        let parts = runs.paths.parts(path);
        let (first, _) = self.ends.of(*parts.first()?, runs, rules)?;
        let (_, end) = self.ends.of(*parts.last()?, runs, rules)?;
        let first_stretch = u32::try_from(self.stretches.len()).ok()?;
        let mut turns = std::mem::take(&mut self.written);
        turns.clear();
        all_turns(path, runs, rules, &mut self.ends, &mut turns);
        let written = self.write_stretches(first.function, &turns, rules);
        self.written = turns;
        written?;
        let mut script = Script {
            first,
            end,
            count: u32::try_from(runs.paths.count(path)).ok()?,
            home: Stretch::ANY,
            first_stretch,
            stretches: u32::try_from(self.stretches.len()).ok()? - first_stretch,
        };
        if script.stretches == 1
            && let Some(stretch) = self.stretches.pop_if(|stretch| stretch.is_still())
        {
            (script.home, script.stretches) = (stretch.home, 0);
        }
        let at = path as usize;
        if self.scripts.len() <= at {
            self.scripts.resize(runs.paths.len().max(at + 1), None);
        }
        *self.scripts.get_mut(at)? = Some(script);
        Some(script)
    }

    /// Divides the transfers of a path that begins in the function `home` into stretches.
    fn write_stretches(&mut self, mut home: u32, turns: &[Turn], rules: &mut Rules<'_>) -> Option<()> {
        let mut stretch = self.stretch(turns.first())?;
        let mut at = 0;
        while let Some(turn) = turns.get(at) {
            if turn.from.falls(turn.to) {
                at += 1;
                continue;
            }
            if stretch.is_long() {
                self.end(stretch);
                stretch = self.stretch(Some(turn))?;
            }
            if turn.from.jumps() && rules.stays(home, &turn.from, turn.to) {
                stretch.home = home;
                if turn.from.way == Way::IndirectJump {
                    self.unexpected.push(turn.to.id);
                    stretch.unexpected += 1;
                }
                at += 1;
                continue;
            }
            if turn.from.calls() {
                let rest = turns.get(at..).unwrap_or(&[]);
                at += self.trial.run(rest, rules, &mut self.unexpected);
                self.add_tried(&mut stretch);
                if stretch.open == 0 {
                    continue;
                }
            }
            stretch.turn = turns.get(at).copied();
            let Some(turn) = stretch.turn else { break };
            self.end(stretch);
            home = turn.to.function;
            at += 1;
            stretch = self.stretch(turns.get(at))?;
        }
        if stretch.home != Stretch::ANY || !stretch.is_still() {
            self.end(stretch);
        }
        Some(())
    }

    /// A stretch that begins with this transfer, if with any.
    fn stretch(&self, first: Option<&Turn>) -> Option<Stretch> {
        Some(Stretch {
            home: Stretch::ANY,
            first_unexpected: u32::try_from(self.unexpected.len()).ok()?,
            returns: 0,
            first_call: u32::try_from(self.calls.len()).ok()?,
            first_open: u32::try_from(self.open.len()).ok()?,
            unexpected: 0,
            suspect: 0,
            calls: 0,
            open: 0,
            deepest: 0,
            begin: first.map_or(0, |turn| turn.offset),
            turn: None,
        })
    }

    /// What the last trial found is of a stretch, which ends if a call stays open.
    fn add_tried(&mut self, stretch: &mut Stretch) {
        let calls = self.trial.calls();
        let open = self.trial.open().iter().map(|frame| Open {
            first: frame.first as u32,
            node: frame.node - 1 + u32::from(stretch.calls),
            base: frame.base - 1,
            returns_to: frame.returns_to,
            function: frame.function,
        });
        self.open.extend(open);
        let deepest = self.calls.add(calls, stretch.calls.into());
        stretch.deepest = stretch.deepest.max(deepest as u16);
        // A trial is short.
        stretch.open = self.trial.open().len() as u16;
        stretch.calls += (calls.len() - 1) as u16;
        stretch.unexpected = (self.unexpected.len() - stretch.first_unexpected as usize) as u16;
    }

    fn end(&mut self, mut stretch: Stretch) {
        let mut unexpected = self.unexpected.split_off(stretch.first_unexpected as usize);
        unexpected.sort_unstable();
        unexpected.dedup();
        stretch.unexpected = unexpected.len() as u16;
        self.unexpected.append(&mut unexpected);
        self.stretches.push(stretch);
    }
}

impl Stretch {
    /// What it was found out under is so.
    #[inline]
    fn holds(&mut self, unexpected: &mut [u32], rules: &mut Rules<'_>) -> bool {
        (self.home == Self::ANY || rules.runs(self.home))
            && (self.unexpected == 0 || self.returns_nowhere(unexpected, rules))
    }

    /// No open call returns to one of its unexpected places.
    #[inline]
    fn returns_nowhere(&mut self, unexpected: &mut [u32], rules: &mut Rules<'_>) -> bool {
        if self.returns != rules.places.returns() {
            self.suspect(unexpected, rules);
        }
        let first = self.first_unexpected as usize;
        let suspect = unexpected.get(first..first + usize::from(self.suspect));
        !suspect.unwrap_or(&[]).iter().any(|&place| rules.expects(place))
    }

    /// Puts the places that some call returns to before the others.
    #[cold]
    fn suspect(&mut self, unexpected: &mut [u32], rules: &Rules<'_>) {
        let first = self.first_unexpected as usize;
        let all = unexpected.get_mut(first..first + usize::from(self.unexpected));
        let all = all.unwrap_or(&mut []);
        all.sort_unstable_by_key(|&place| !rules.places.may_be_returned_to(place));
        let suspect = all.partition_point(|&place| rules.places.may_be_returned_to(place));
        (self.suspect, self.returns) = (suspect as u16, rules.places.returns());
    }

    /// What comes next is for another.
    fn is_long(&self) -> bool {
        self.calls.max(self.unexpected) >= Self::LONG
    }

    /// It changes nothing while the innermost call is of its function.
    fn is_still(&self) -> bool {
        self.unexpected == 0 && self.calls == 0 && self.turn.is_none()
    }
}

/// All transfers between the blocks of a path.
fn all_turns(path: u32, runs: Runs<'_>, rules: &mut Rules<'_>, ends: &mut Ends, turns: &mut Vec<Turn>) {
    let mut offset = 0;
    let mut last = None;
    for &block in runs.paths.parts(path) {
        let Some((first, end)) = ends.of(block, runs, rules) else {
            continue;
        };
        if let Some(from) = last.replace(end) {
            turns.push(Turn {
                from,
                to: first,
                offset,
            });
        }
        offset += runs.blocks.count(block) as u32;
    }
}
