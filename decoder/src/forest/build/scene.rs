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
    /// None of the places that no open call may return to was one that calls return to at all, when so many of these were known;
    /// [`Scene::CALM`]: there are none, [`Scene::NOT_CALM`]: it was not asked yet.
    calm: u32,
    /// The instruction of the path before which the first of them is not.
    begin: u32,
}

const _: () = assert!(size_of::<Scene>() == 64);

/// What is seldom asked of a scene.
struct Behind {
    /// The number of the places that no open call may return to; [`NONE`]: there is none.
    unexpected: u32,
    /// What ends it, if it is not the path's end.
    turn: Option<Turn>,
}

/// The scenes of all paths.
#[derive(Default)]
pub(super) struct Stage {
    scenes: Vec<Scene>,
    levels: Vec<Level>,
    open: Vec<Open>,
    unexpected: Unexpected,
    /// What is seldom asked of scenes, by scene.
    behind: Vec<Behind>,
    /// The functions that scenes jump to, by scene, of those that jump to any.
    tails: FxHashMap<u32, Vec<Tail>>,
}

impl Scene {
    /// The most levels that are kept here.
    const NEAR: usize = 2;
    /// No numbers of places.
    const CALM: u32 = u32::MAX;
    const NOT_CALM: u32 = u32::MAX - 1;

    /// What it does, with its levels; `open` are the frames of all scenes.
    #[inline(always)]
    fn act<'a>(&self, levels: &'a [Level], open: &'a [Open]) -> Act<'a> {
        Act {
            levels,
            pattern: self.pattern,
            calls: self.calls,
            frames: open,
            first_open: self.first_open,
            open: self.open,
        }
    }

    /// It changes nothing while the innermost call is of its function.
    fn is_still(&self) -> bool {
        self.levels == 1 && !self.near[0].alone && self.pattern.is_none() && self.calm == Self::CALM
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
        self.behind.get(number as usize)?.turn.as_ref()
    }

    /// Does what a scene says, of a path that begins with instruction `index`. Says whether it did: the open calls may be others than
    /// it is meant for.
    #[inline(always)]
    pub fn run(&mut self, number: u32, index: u64, rules: &mut Rules<'_>) -> bool {
        let Some(scene) = self.scenes.get(number as usize) else {
            return false;
        };
        let calm = scene.calm == Scene::CALM || scene.calm == rules.places.returns();
        if !calm {
            return self.run_far(number, index, rules);
        }
        let act = scene.act(scene.near.get(..scene.levels.into()).unwrap_or(&[]), &self.open);
        rules.perform_near(&act, index, index + u64::from(scene.begin)) || self.run_far(number, index, rules)
    }

    /// The same, whatever there is to ask and to do.
    #[inline(never)]
    fn run_far(&mut self, number: u32, index: u64, rules: &mut Rules<'_>) -> bool {
        let Some(scene) = self.scenes.get_mut(number as usize) else {
            return false;
        };
        if scene.calm != Scene::CALM && scene.calm != rules.places.returns() {
            let places = self.behind.get(number as usize);
            let places = places.map_or(NONE, |behind| behind.unexpected);
            if !self.unexpected.holds(places, rules) {
                return false;
            }
            if !self.unexpected.is_suspect(places) {
                scene.calm = rules.places.returns();
            }
        }
        let levels = match scene.near.get(..scene.levels.into()) {
            Some(near) => near,
            None => list(&self.levels, scene.first_level, scene.levels),
        };
        let act = scene.act(levels, &self.open);
        let begin = index + u64::from(scene.begin);
        rules.perform_far(&act, index, begin)
            || perform_sharing(&self.tails, number, &act, index, begin, rules)
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
        let (_, before) = trial.calls();
        let open = trial.open().iter();
        let open = open.map(|frame| Open::new(frame, begin, before));
        let (first_open, open) = add(&mut self.open, open)?;
        let mut scene = Scene {
            near,
            first_level,
            levels: u16::try_from(levels.len()).ok()?,
            open,
            first_open,
            pattern: added.map(|added| added.pattern),
            calls: added.map_or(0, |added| added.len),
            calm: Scene::CALM,
            begin,
        };
        let mut unexpected = NONE;
        if !trial.unexpected().is_empty() {
            unexpected = self.unexpected.add(trial.unexpected())?;
            scene.calm = Scene::NOT_CALM;
        }
        if !trial.tails().is_empty() {
            let number = u32::try_from(self.scenes.len()).ok()?;
            self.tails.insert(number, trial.tails().to_vec());
        }
        self.scenes.push(scene);
        self.behind.push(Behind {
            unexpected,
            turn: turn.copied(),
        });
        Some(())
    }

    /// Takes the last scene away, if it changes nothing while the innermost call is of a function. Gives that.
    pub fn take_still(&mut self) -> Option<u32> {
        let ends = self.behind.last()?.turn.is_none();
        let still = self.scenes.pop_if(|scene| ends && scene.is_still())?;
        self.behind.pop();
        Some(still.near[0].function)
    }
}

/// Does an act where calls share their returns with others, which are as good when those are of no function that the scene jumps
/// to. Says whether it did.
#[cold]
fn perform_sharing(
    tails: &FxHashMap<u32, Vec<Tail>>,
    number: u32,
    act: &Act<'_>,
    index: u64,
    begin: u64,
    rules: &mut Rules<'_>,
) -> bool {
    let tails = tails.get(&number);
    let fits = tails.is_some_and(|tails| rules.fits_sharing(act.levels, tails));
    if fits {
        rules.perform(act, index, begin);
    }
    fits
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
