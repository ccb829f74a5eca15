//! What paths do to the open calls, found out once.

use super::ends::Ends;
use super::rules::{Rules, Source, Way};
use super::trial::Trial;
use super::turns::{self, Turn};
use super::unexpected::Unexpected;
use crate::Runs;
use crate::forest::effects::{Behind, Effects};
use crate::forest::places::Place;
use crate::forest::stack::{Act, End, Far, Key, Level, NONE, Open, Reach, Round, Tail};

/// The scripts of paths.
#[derive(Default)]
pub(super) struct Scripts {
    /// By path.
    acts: Vec<Act>,
    /// What is not in the acts.
    rest: Vec<Rest>,
    unexpected: Unexpected,
    trial: Trial,
    ends: Ends,
    /// The transfers of the path that a script is written for.
    turns: Vec<Turn>,
}

/// What is not in the act of a path.
struct Rest {
    levels: Few<Level>,
    open: Few<Open>,
    tails: Few<Tail>,
    renames: Option<Place>,
    /// The places that no open call may return to, of those that some call does.
    unexpected: Box<[u32]>,
}

/// Some of something: here, where they are few.
enum Few<T> {
    Here([T; 4], u8),
    There(Box<[T]>),
}

impl<T: Copy> Few<T> {
    fn new(all: &[T]) -> Self {
        match (all.first(), u8::try_from(all.len())) {
            (Some(&first), Ok(len @ ..=4)) => {
                let at = |at| all.get(at).copied().unwrap_or(first);
                Self::Here(std::array::from_fn(at), len)
            }
            _ => Self::There(all.into()),
        }
    }

    #[inline]
    fn all(&self) -> &[T] {
        match self {
            Self::Here(few, len) => few.get(..usize::from(*len)).unwrap_or(&[]),
            Self::There(all) => all,
        }
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

    /// Does what a path does that is not near, and goes on to the next. Says whether it did.
    #[inline(never)]
    pub fn run_far(
        &mut self,
        path: u32,
        next: u32,
        execution: u64,
        effects: &mut Effects,
        rules: &mut Rules<'_>,
    ) -> bool {
        let (act, next) = (self.acts.get(path as usize), self.acts.get(next as usize));
        let (Some(act), Some(next)) = (act, next) else {
            return false;
        };
        let Some(rest) = self.rest.get(act.rest as usize) else {
            return false;
        };
        if rest.unexpected.iter().any(|&place| rules.expects(place)) {
            return false;
        }
        let (stack, places) = rules.parts();
        let mut round = Round {
            execution,
            effects,
            places,
        };
        let far = Far {
            levels: rest.levels.all(),
            open: rest.open.all(),
            tails: rest.tails.all(),
            renames: rest.renames,
        };
        stack.perform_far(act, &far, next, &mut round)
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
                    act.reach = Reach::Unknown;
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
            reach: Reach::Near,
            ..Act::UNKNOWN
        };
        let mut ops: &[_] = &[];
        if !self.turns.is_empty() || act.end.is_glue() {
            let tried = self.trial.run(first.function, &self.turns, rules);
            match tried.then(|| self.write(path, &mut act, rules)).flatten() {
                Some(()) => ops = self.trial.ops(),
                None => act.reach = Reach::Never,
            }
        }
        let behind = match act.end {
            end if end.calls() => Behind::Calls,
            end if end.returns() => Behind::Returns,
            _ => Behind::Nothing,
        };
        // What executions before have done stays as it is.
        let stays = act.reach == Reach::Never && self.of(path).first != NONE;
        if !stays && effects.learn(path, first.id, ops, behind).is_none() {
            act.reach = Reach::Never;
        }
        *self.acts.get_mut(at)? = act;
        Some(())
    }

    /// Writes down what was tried last of a path. `None`: there is too much of it.
    fn write(&mut self, path: u32, act: &mut Act, rules: &Rules<'_>) -> Option<()> {
        let trial = &mut self.trial;
        act.begin = trial.began();
        let unexpected = trial.unexpected();
        unexpected.sort_unstable();
        unexpected.dedup();
        for &place in unexpected.iter().filter(|&&place| !rules.places.may_be_returned_to(place)) {
            self.unexpected.add(path, place)?;
        }
        unexpected.retain(|&place| rules.places.may_be_returned_to(place));
        let watched = !unexpected.is_empty();
        if !watched && !act.end.is_glue() && write_near(trial, act).is_some() {
            return Some(());
        }
        act.reach = Reach::Far;
        act.rest = u32::try_from(self.rest.len()).ok()?;
        self.rest.push(Rest {
            unexpected: trial.unexpected().as_slice().into(),
            levels: Few::new(trial.levels()),
            open: Few::new(&trial.open().collect::<Vec<_>>()),
            tails: Few::new(trial.tails()),
            renames: trial.renames(),
        });
        Some(())
    }
}

/// Writes what was tried into an act, if there is room for all of it.
fn write_near(trial: &Trial, act: &mut Act) -> Option<()> {
    let (levels, open) = (trial.levels(), trial.open());
    let alone = levels.iter().any(|level| level.alone);
    if levels.len() > act.levels.len() || open.len() > act.open.len() || alone || trial.renames().is_some() {
        return None;
    }
    let mut keys = [Key::NONE; 2];
    for (key, level) in keys.iter_mut().zip(levels) {
        *key = level.key;
    }
    let (mut opened, mut calls) = ([Key::NONE; 2], [0; 2]);
    act.opened = u8::try_from(open.len()).ok()?;
    for (at, Open(frame)) in open.enumerate() {
        if frame.base as usize != at {
            return None;
        }
        *opened.get_mut(at)? = Key {
            returns_to: frame.returns_to,
            function: frame.function,
        };
        *calls.get_mut(at)? = u8::try_from(frame.call).ok()?;
    }
    act.left = u8::try_from(levels.len()).ok()?.checked_sub(1)?;
    (act.levels, act.open, act.calls) = (keys, opened, calls);
    Some(())
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
