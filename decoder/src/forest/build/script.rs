//! What paths do to the open calls, found out once.

use super::ends::Ends;
use super::rules::{Rules, Source, Way};
use super::trial::Trial;
use super::turns::{self, Turn};
use super::unexpected::Unexpected;
use crate::Runs;
use crate::forest::effects::{Behind, Effects};
use crate::forest::places::Place;
use crate::forest::stack::{Act, Deed, Does, End, Far, Frame, Key, NONE, Near, Round, Tail};

/// The scripts of paths.
#[derive(Default)]
pub(super) struct Scripts {
    /// By path.
    acts: Vec<Act>,
    /// What those do that are not near; see [`Deed`].
    frames: Vec<Frame>,
    more: Vec<More>,
    unexpected: Unexpected,
    trial: Trial,
    ends: Ends,
    /// The transfers of the path that a script is written for.
    turns: Vec<Turn>,
}

/// What else there is to ask of few paths.
struct More {
    tails: Box<[Tail]>,
    renames: Option<Place>,
    /// The places that no open call may return to, of those that some call does.
    unexpected: Box<[u32]>,
}

impl More {
    fn is_nothing(&self) -> bool {
        self.tails.is_empty() && self.renames.is_none() && self.unexpected.is_empty()
    }
}

impl Scripts {
    /// The act of a path, as far as it was met.
    #[inline]
    pub fn of(&self, path: u32) -> &Act {
        self.acts.get(path as usize).unwrap_or(&Act::UNKNOWN)
    }

    /// The first place of a path that was met.
    pub fn first(&self, path: u32) -> Place {
        self.of(path).place()
    }

    /// Performs an act, and goes on to the next. Says whether it did.
    #[inline(always)]
    pub fn run(
        &self,
        act: &Act,
        next: &Act,
        execution: u64,
        effects: &mut Effects,
        rules: &mut Rules<'_>,
    ) -> bool {
        match &act.does {
            Does::Near(near) => {
                let (stack, places) = rules.parts();
                let mut round = Round {
                    execution,
                    effects,
                    places,
                };
                stack.perform_near(act, near, next, &mut round)
            }
            Does::Far(far) => self.run_far(act, far, next, execution, effects, rules),
            Does::Unknown | Does::Never => false,
        }
    }

    #[inline(never)]
    fn run_far(
        &self,
        act: &Act,
        far: &Far,
        next: &Act,
        execution: u64,
        effects: &mut Effects,
        rules: &mut Rules<'_>,
    ) -> bool {
        let frames = self.frames.get(far.first as usize..).unwrap_or(&[]);
        let (Some((levels, rest)), more) = (
            frames.split_at_checked(far.levels as usize),
            self.more.get(far.more as usize),
        ) else {
            return false;
        };
        let Some(open) = rest.get(..far.open as usize) else {
            return false;
        };
        let mut unexpected = more.iter().flat_map(|more| &more.unexpected);
        if unexpected.any(|&place| rules.expects(place)) {
            return false;
        }
        let (stack, places) = rules.parts();
        let mut round = Round {
            execution,
            effects,
            places,
        };
        let deed = Deed {
            levels,
            open,
            tails: more.map_or(&[], |more| &more.tails),
            renames: more.and_then(|more| more.renames),
        };
        stack.perform_far(act, &deed, next, &mut round)
    }

    /// Goes over a path by its transfers, of an execution that begins with instruction `index`. Gives its last instruction.
    #[cold]
    pub fn follow(&mut self, path: u32, runs: Runs<'_>, index: u64, rules: &mut Rules<'_>) -> Option<Source> {
        self.turns.clear();
        turns::list(path, runs, rules, &mut self.ends, &mut self.turns);
        for turn in &self.turns {
            turn.happen(index, rules);
        }
        self.mind(rules);
        let last = *runs.paths.parts(path).last()?;
        self.ends.known(last).map(|end| end.last)
    }

    /// What paths do that jump to places which calls are known to return to since then has to be found out anew.
    fn mind(&mut self, rules: &mut Rules<'_>) {
        while let Some(place) = rules.places.new_return() {
            for path in self.unexpected.take(place) {
                if let Some(act) = self.acts.get_mut(path as usize) {
                    act.does = Does::Unknown;
                }
            }
        }
    }

    /// A path is new.
    #[cold]
    pub fn meet(
        &mut self,
        path: u32,
        runs: Runs<'_>,
        effects: &mut Effects,
        rules: &mut Rules<'_>,
    ) -> Option<()> {
        let parts = runs.paths.parts(path);
        let first = self.ends.of(*parts.first()?, runs, rules)?.first;
        let last = self.ends.of(*parts.last()?, runs, rules)?.last;
        let at = path as usize;
        if self.acts.len() <= at {
            self.acts.resize(runs.paths.len().max(at + 1), Act::UNKNOWN);
        }
        self.turns.clear();
        turns::list(path, runs, rules, &mut self.ends, &mut self.turns);
        self.mind(rules);
        let mut act = Act {
            first: first.id,
            inside: first.function,
            behind: last.behind(),
            count: u32::try_from(runs.paths.count(path)).ok()?,
            end: end_of(&last),
            does: Does::Near(Near::NOTHING),
            ..Act::UNKNOWN
        };
        let mut ops: &[_] = &[];
        let mut resolved = None;
        if !self.turns.is_empty() || act.end.is_glue() {
            let tried = self.trial.run(first.function, &self.turns, rules);
            match tried.then(|| self.write(path, &mut act, rules)).flatten() {
                Some(does) => {
                    act.does = does;
                    (ops, resolved) = (self.trial.ops(), self.trial.open().last());
                }
                None => act.does = Does::Never,
            }
        }
        let behind = match (act.end, resolved) {
            (end, _) if end.calls() => Behind::Calls,
            (end, _) if end.returns() => Behind::Returns,
            (end, Some(open)) if end.is_glue() => Behind::Resolves(open.call),
            (end, _) if end.jumps() => Behind::MayTailCall,
            _ => Behind::Nothing,
        };
        // What executions before have done stays as it is.
        let stays = matches!(act.does, Does::Never) && self.of(path).first != NONE;
        if !stays && effects.learn(path, first.id, ops, behind).is_none() {
            act.does = Does::Never;
        }
        *self.acts.get_mut(at)? = act;
        Some(())
    }

    /// What was tried last of a path. `None`: there is too much of it.
    fn write(&mut self, path: u32, act: &mut Act, rules: &Rules<'_>) -> Option<Does> {
        act.begin = self.trial.began();
        let more = More {
            unexpected: self.watch(path, rules)?,
            tails: self.trial.tails().into(),
            renames: self.trial.renames(),
        };
        // Of glue that it did not come to by a call of its own, the call is of another function behind it.
        let renames = act.end.is_glue() && self.trial.open().len() == 0;
        match near(&self.trial) {
            Some(near) if more.is_nothing() && !renames => Some(Does::Near(near)),
            _ => self.write_far(more),
        }
    }

    fn write_far(&mut self, more: More) -> Option<Does> {
        let (levels, open) = (self.trial.levels(), self.trial.open());
        let far = Far {
            first: u32::try_from(self.frames.len()).ok()?,
            levels: u32::try_from(levels.len()).ok()?,
            open: u32::try_from(open.len()).ok()?,
            more: match more.is_nothing() {
                true => NONE,
                false => u32::try_from(self.more.len()).ok()?,
            },
        };
        self.frames.extend(levels.iter().map(|level| level.frame()));
        self.frames.extend(open);
        if far.more != NONE {
            self.more.push(more);
        }
        Some(Does::Far(far))
    }

    /// Watches the places that no open call may return to in the path tried last, for calls that do. Gives those that some call is known to
    /// return to already.
    fn watch(&mut self, path: u32, rules: &Rules<'_>) -> Option<Box<[u32]>> {
        let places = self.trial.unexpected();
        places.sort_unstable();
        places.dedup();
        let is_known = |place: &u32| rules.places.may_be_returned_to(*place);
        for &place in places.iter().filter(|&place| !is_known(place)) {
            self.unexpected.add(path, place)?;
        }
        places.retain(is_known);
        Some(places.as_slice().into())
    }
}

/// What was tried, if it is near.
fn near(trial: &Trial) -> Option<Near> {
    let (levels, open) = (trial.levels(), trial.open());
    let mut near = Near::NOTHING;
    if levels.len() > near.levels.len()
        || open.len() > near.open.len()
        || levels.iter().any(|level| level.alone)
    {
        return None;
    }
    for (key, level) in near.levels.iter_mut().zip(levels) {
        *key = level.key;
    }
    near.opened = u8::try_from(open.len()).ok()?;
    near.left = u8::try_from(levels.len()).ok()?.checked_sub(1)?;
    for (at, frame) in open.enumerate() {
        if frame.base as usize != at {
            return None;
        }
        *near.open.get_mut(at)? = Key {
            returns_to: frame.returns_to,
            function: frame.function,
        };
        *near.calls.get_mut(at)? = u8::try_from(frame.call).ok()?;
    }
    Some(near)
}

/// How a path ends by its last instruction.
fn end_of(last: &Source) -> End {
    match last.way {
        Way::Sequential => End::SEQUENTIAL,
        Way::Call | Way::IndirectCall => End::CALL,
        Way::Return => End::RETURN,
        Way::IndirectJump if last.glue => End::INDIRECT_GLUE_JUMP,
        Way::Jump if last.glue => End::GLUE_JUMP,
        Way::Conditional if last.glue => End::OTHER,
        Way::Conditional => End::CONDITIONAL,
        Way::Jump => End::JUMP,
        Way::IndirectJump => End::INDIRECT_JUMP,
        Way::Far => End::OTHER,
    }
}
