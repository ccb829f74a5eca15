//! What the blocks of a path do to the open calls, written down: scenes.

use super::rules::Rules;
use super::trial::{Tail, Trial};
use super::turns::Turn;
use super::unexpected::Unexpected;
use crate::forest::nodes::Pattern;
use crate::forest::stack::{Act, Level, NONE, Open};
use rustc_hash::FxHashMap;

/// Transfers of a path of which it is known beforehand what they do, then one of which it is not. What is asked of it each time
/// is in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Scene {
    /// The calls that they go on in: `levels` of them, in the list from this number on when they are too many to be here.
    near: [Level; Scene::NEAR],
    first_level: u32,
    levels: u16,
    /// What they call and leave open.
    open: u16,
    first_open: u32,
    /// What they call: see [`Act`].
    pattern: Option<Pattern>,
    calls: u32,
    /// The number of the places that no open call may return to, and of what ends them; [`NONE`]: there is none, the path ends them.
    unexpected: u32,
    turn: u32,
    /// The instruction of the path before which the first of them is not.
    begin: u32,
}

const _: () = assert!(size_of::<Scene>() == 64);

/// The scenes of all paths.
#[derive(Default)]
pub(super) struct Stage {
    scenes: Vec<Scene>,
    levels: Vec<Level>,
    open: Vec<Open>,
    unexpected: Unexpected,
    /// What ends scenes.
    turns: Vec<Turn>,
    /// The functions that scenes jump to, by scene, of those that jump to any.
    tails: FxHashMap<u32, Vec<Tail>>,
}

impl Scene {
    /// The most levels that are kept here.
    const NEAR: usize = 2;

    /// It changes nothing while the innermost call is of its function.
    fn is_still(&self) -> bool {
        self.levels == 1
            && !self.near[0].alone
            && self.pattern.is_none()
            && (self.unexpected, self.turn) == (NONE, NONE)
    }
}

impl Stage {
    /// How many scenes there are; the next has this number.
    pub fn len(&self) -> usize {
        self.scenes.len()
    }

    /// The instruction of its path before which none of a scene's transfers is.
    pub fn begin(&self, number: u32) -> u32 {
        self.scenes.get(number as usize).map_or(0, |scene| scene.begin)
    }

    /// What ends a scene, if it is not the path's end.
    #[inline]
    pub fn turn(&self, number: u32) -> Option<&Turn> {
        let scene = self.scenes.get(number as usize)?;
        self.turns.get(scene.turn as usize)
    }

    /// Does what a scene says, of a path that begins with instruction `index`. Says whether it did: the open calls may be others than
    /// it is meant for.
    #[inline(always)]
    pub fn run(&mut self, number: u32, index: u64, rules: &mut Rules<'_>) -> bool {
        let Some(scene) = self.scenes.get(number as usize) else {
            return false;
        };
        let levels = match scene.near.get(..scene.levels.into()) {
            Some(near) => near,
            None => list(&self.levels, scene.first_level, scene.levels),
        };
        if !rules.fits(levels) && !fits_sharing(&self.tails, number, levels, rules) {
            return false;
        }
        if scene.unexpected != NONE && !self.unexpected.holds(scene.unexpected, rules) {
            return false;
        }
        let act = Act {
            levels,
            pattern: scene.pattern,
            calls: scene.calls,
            open: list(&self.open, scene.first_open, scene.open),
        };
        rules.perform(&act, index, index + u64::from(scene.begin));
        true
    }

    /// Writes down what was tried last. The scene begins at an instruction of its path, and ends with a transfer, if not with the path.
    pub fn write(
        &mut self,
        trial: &mut Trial,
        begin: u32,
        turn: Option<&Turn>,
        rules: &mut Rules<'_>,
    ) -> Option<()> {
        let added = trial.add_to(rules.stock(), begin);
        let levels = trial.levels();
        let mut near = [*levels.first()?; Scene::NEAR];
        let mut first_level = 0;
        match near.get_mut(..levels.len()) {
            Some(near) => near.copy_from_slice(levels),
            None => (first_level, _) = add(&mut self.levels, levels.iter().copied())?,
        }
        let (tried, before) = trial.calls();
        let open = trial.open().iter().map(|frame| Open {
            first: frame.first as u32 - begin,
            node: frame.node - before,
            base: match frame.base {
                0 => NONE,
                base => base - 1,
            },
            returns_to: frame.returns_to,
            function: frame.function,
            what: tried.what(frame.node),
        });
        let (first_open, open) = add(&mut self.open, open)?;
        let mut scene = Scene {
            near,
            first_level,
            levels: u16::try_from(levels.len()).ok()?,
            open,
            first_open,
            pattern: added.map(|added| added.pattern),
            calls: added.map_or(0, |added| added.len),
            unexpected: NONE,
            turn: NONE,
            begin,
        };
        if !trial.unexpected().is_empty() {
            scene.unexpected = self.unexpected.add(trial.unexpected())?;
        }
        if let Some(&turn) = turn {
            (scene.turn, _) = add(&mut self.turns, [turn])?;
        }
        if !trial.tails().is_empty() {
            let number = u32::try_from(self.scenes.len()).ok()?;
            self.tails.insert(number, trial.tails().to_vec());
        }
        self.scenes.push(scene);
        Some(())
    }

    /// Takes the last scene away, if it changes nothing while the innermost call is of a function. Gives that.
    pub fn take_still(&mut self) -> Option<u32> {
        let still = self.scenes.pop_if(|scene| scene.is_still())?;
        Some(still.near[0].function)
    }
}

/// Calls that share their returns with others are as good, when those are of no function that the scene jumps to.
#[cold]
fn fits_sharing(tails: &FxHashMap<u32, Vec<Tail>>, number: u32, levels: &[Level], rules: &Rules<'_>) -> bool {
    let tails = tails.get(&number);
    tails.is_some_and(|tails| rules.fits_sharing(levels, tails))
}

/// Those of a list.
#[inline]
fn list<T>(all: &[T], first: u32, len: u16) -> &[T] {
    let first = first as usize;
    all.get(first..first + usize::from(len)).unwrap_or(&[])
}

/// Adds to a list; gives where, and how many.
fn add<T>(list: &mut Vec<T>, new: impl IntoIterator<Item = T>) -> Option<(u32, u16)> {
    let first = list.len();
    list.extend(new);
    let len = u16::try_from(list.len() - first).ok()?;
    Some((u32::try_from(first).ok()?, len))
}
