//! What the blocks of a path do to the open calls, found out once.

use super::ends::Ends;
use super::rules::{Rules, Source};
use super::trial::Trial;
use crate::Runs;
use crate::forest::nodes::Pattern;
use crate::forest::places::Place;
use crate::forest::stack::{Act, Level, NONE, Open};
use rustc_hash::FxHashMap;

/// A path as far as calls go.
#[derive(Clone, Copy)]
pub(super) struct Script {
    /// Its first instruction.
    pub first: Place,
    /// Its last one.
    pub end: Source,
    /// Its instructions; 0: the script is not known.
    pub count: u32,
    /// The number of the place that was next the first time; [`NONE`].
    next: u32,
    /// What its transfers do with the one to that place, and without.
    onward: Scenes,
    within: Scenes,
}

/// Scenes of a path.
#[derive(Clone, Copy)]
struct Scenes {
    /// The first in the list, how many; [`Scenes::NEW`], [`Scenes::MET`].
    first: u32,
    len: u32,
    /// Where there are none, nothing changes while the innermost call is of this function; [`Level::ANY`].
    home: u32,
}

impl Scenes {
    /// It was not gone over yet, or once, and has no scenes: many paths come but once, and are not worth any.
    const NEW: u32 = u32::MAX;
    const MET: u32 = u32::MAX - 1;

    const NOT_YET: Self = Self {
        first: 0,
        len: Self::NEW,
        home: Level::ANY,
    };
}

/// Where a path is, and where it goes on.
#[derive(Clone, Copy)]
pub(super) struct Course<'a> {
    pub path: u32,
    pub runs: Runs<'a>,
    /// The number of its first instruction.
    pub index: u64,
    /// The place of the instruction behind it; `None`: something is between, or not known yet.
    pub next: Option<Place>,
}

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

impl Scene {
    /// The most levels that are kept here.
    const NEAR: usize = 2;
}

/// Places that flow jumps to, and that no open call may return to.
#[derive(Clone, Copy)]
struct Unexpected {
    first: u32,
    len: u32,
    /// The first `suspect` of them are those that some call returns to, when `returns` such places were known.
    suspect: u32,
    returns: u32,
}

/// From one block of a path to the next, or from its last.
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
    scripts: Vec<Script>,
    scenes: Vec<Scene>,
    levels: Vec<Level>,
    open: Vec<Open>,
    /// Of scenes, and the places in them.
    unexpected: Vec<Unexpected>,
    places: Vec<u32>,
    /// What ends scenes.
    ends_scene: Vec<Turn>,
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
    pub fn of(&mut self, path: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<&Script> {
        let known = self
            .scripts
            .get(path as usize)
            .is_some_and(|script| script.count > 0);
        if !known {
            self.meet(path, runs, rules)?;
        }
        self.scripts.get(path as usize)
    }

    /// Goes over a path by its script. Says whether it went on to the next place, too.
    #[inline]
    pub fn run(&mut self, mut course: Course<'_>, rules: &mut Rules<'_>) -> bool {
        let Some(script) = self.scripts.get(course.path as usize) else {
            return false;
        };
        course.next = course
            .next
            .filter(|next| script.next == next.id || script.next == NONE);
        let scenes = match course.next {
            Some(_) => script.onward,
            None => script.within,
        };
        match scenes.len {
            0 if scenes.home == Level::ANY || rules.runs(scenes.home) => {}
            0 => self.follow(&course, 0, rules),
            Scenes::MET.. => self.learn(&course, rules),
            _ => self.run_scenes(scenes, &course, rules),
        }
        course.next.is_some()
    }

    fn run_scenes(&mut self, scenes: Scenes, course: &Course<'_>, rules: &mut Rules<'_>) {
        let index = course.index;
        for number in scenes.first..scenes.first + scenes.len {
            let Some(scene) = self.scenes.get(number as usize) else {
                return;
            };
            let levels = match scene.near.get(..scene.levels.into()) {
                Some(near) => near,
                None => list(&self.levels, scene.first_level, scene.levels.into()),
            };
            let Some((stays, left)) = levels.split_last() else {
                return;
            };
            let act = Act {
                left,
                stays,
                pattern: scene.pattern,
                calls: scene.calls,
                begin: scene.begin,
                open: list(&self.open, scene.first_open, scene.open.into()),
            };
            let unexpected = self.unexpected.get_mut(scene.unexpected as usize);
            let fits =
                rules.fits(&act) && unexpected.is_none_or(|places| places.holds(&mut self.places, rules));
            if !fits {
                let begin = scene.begin;
                return self.follow(course, begin, rules);
            }
            rules.perform(&act, index);
            if let Some(turn) = self.ends_scene.get(scene.turn as usize) {
                rules.transfer(&turn.from, turn.to, index + u64::from(turn.offset));
            }
        }
    }

    /// Goes over a path by its transfers, from behind the one before its instruction `begin`, if there is one.
    #[cold]
    fn follow(&mut self, course: &Course<'_>, begin: u32, rules: &mut Rules<'_>) {
        let turns = self.turns.entry(course.path).or_insert_with(|| {
            let mut turns = Vec::new();
            all_turns(course.path, course.runs, rules, &mut self.ends, &mut turns);
            turns
        });
        // None is before the first instruction.
        let from = turns.partition_point(|turn| turn.offset <= begin);
        let script = self.scripts.get(course.path as usize);
        let next = script.zip(course.next).map(|(script, next)| script.turn_to(next));
        for turn in turns.get(from..).unwrap_or(&[]).iter().chain(&next) {
            rules.transfer(&turn.from, turn.to, course.index + u64::from(turn.offset));
        }
    }

    /// A path is new.
    #[cold]
    fn meet(&mut self, path: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<()> {
        let parts = runs.paths.parts(path);
        let (first, _) = self.ends.of(*parts.first()?, runs, rules)?;
        let (_, end) = self.ends.of(*parts.last()?, runs, rules)?;
        let script = Script {
            first,
            end,
            count: u32::try_from(runs.paths.count(path)).ok()?,
            next: NONE,
            onward: Scenes::NOT_YET,
            within: Scenes::NOT_YET,
        };
        let at = path as usize;
        if self.scripts.len() <= at {
            let unknown = Script { count: 0, ..script };
            self.scripts.resize(runs.paths.len().max(at + 1), unknown);
        }
        *self.scripts.get_mut(at)? = script;
        Some(())
    }

    /// Goes over a path that has no such scenes yet.
    #[cold]
    fn learn(&mut self, course: &Course<'_>, rules: &mut Rules<'_>) {
        let Some(&(mut script)) = self.scripts.get(course.path as usize) else {
            return;
        };
        let mut turns = std::mem::take(&mut self.written);
        turns.clear();
        all_turns(course.path, course.runs, rules, &mut self.ends, &mut turns);
        if let Some(next) = course.next {
            script.next = next.id;
            if !script.end.falls(next) {
                turns.push(script.turn_to(next));
            }
        }
        let scenes = match course.next {
            Some(_) => &mut script.onward,
            None => &mut script.within,
        };
        if turns.is_empty() {
            scenes.len = 0;
        } else if scenes.len == Scenes::NEW {
            scenes.len = Scenes::MET;
        } else if let Some(written) = self.write(script.first.function, &turns, rules) {
            *scenes = written;
        }
        for turn in &turns {
            rules.transfer(&turn.from, turn.to, course.index + u64::from(turn.offset));
        }
        self.written = turns;
        if let Some(known) = self.scripts.get_mut(course.path as usize) {
            *known = script;
        }
    }

    /// Writes scenes of the transfers of a path that begins in the function `home`. `None`: there are as many as can be told
    /// apart.
    fn write(&mut self, home: u32, turns: &[Turn], rules: &mut Rules<'_>) -> Option<Scenes> {
        let first = u32::try_from(self.scenes.len()).ok()?;
        self.write_scenes(home, turns, rules)?;
        let len = u32::try_from(self.scenes.len()).ok()? - first;
        let still = self.scenes.pop_if(|scene| len == 1 && scene.is_still());
        Some(match still {
            Some(scene) => Scenes {
                first,
                len: 0,
                home: scene.near[0].function,
            },
            None => Scenes {
                first,
                len,
                home: Level::ANY,
            },
        })
    }

    /// Divides them into scenes.
    fn write_scenes(&mut self, mut home: u32, turns: &[Turn], rules: &mut Rules<'_>) -> Option<()> {
        let (mut at, mut begin) = (0, 0);
        loop {
            let rest = turns.get(at..).unwrap_or(&[]);
            let done = self.trial.run(home, begin, rest, rules);
            let turn = rest.get(done);
            self.write_scene(begin, turn, rules)?;
            let Some(turn) = turn else { return Some(()) };
            (home, begin) = (turn.to.function, turn.offset);
            at += done + 1;
            if at == turns.len() {
                return Some(());
            }
        }
    }

    /// Writes down what was tried last.
    fn write_scene(&mut self, begin: u32, turn: Option<&Turn>, rules: &mut Rules<'_>) -> Option<()> {
        let added = self.trial.add_to(rules.stock(), begin);
        let levels = self.trial.levels();
        let mut near = [*levels.first()?; Scene::NEAR];
        let mut first_level = 0;
        match near.get_mut(..levels.len()) {
            Some(near) => near.copy_from_slice(levels),
            None => (first_level, _) = add(&mut self.levels, levels.iter().copied())?,
        }
        let (tried, before) = self.trial.calls();
        let open = self.trial.open().iter().map(|frame| Open {
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
            open: u16::try_from(open).ok()?,
            first_open,
            pattern: added.map(|added| added.pattern),
            calls: added.map_or(0, |added| added.len),
            unexpected: NONE,
            turn: NONE,
            begin,
        };
        let unexpected = self.trial.unexpected();
        if !unexpected.is_empty() {
            let unexpected = Unexpected::add(&mut self.places, unexpected)?;
            (scene.unexpected, _) = add(&mut self.unexpected, [unexpected])?;
        }
        if let Some(&turn) = turn {
            (scene.turn, _) = add(&mut self.ends_scene, [turn])?;
        }
        self.scenes.push(scene);
        Some(())
    }
}

impl Script {
    /// The transfer to the place behind it.
    fn turn_to(&self, next: Place) -> Turn {
        Turn {
            from: self.end,
            to: next,
            offset: self.count,
        }
    }
}

impl Scene {
    /// It changes nothing while the innermost call is of its function.
    fn is_still(&self) -> bool {
        self.levels == 1
            && !self.near[0].alone
            && self.pattern.is_none()
            && (self.unexpected, self.turn) == (NONE, NONE)
    }
}

/// `len` entries, from number `first` on.
#[inline]
fn range(first: u32, len: u32) -> std::ops::Range<usize> {
    first as usize..first as usize + len as usize
}

/// Those of a list.
#[inline]
fn list<T>(all: &[T], first: u32, len: u32) -> &[T] {
    all.get(range(first, len)).unwrap_or(&[])
}

/// Adds to a list; gives where, and how many.
fn add<T>(list: &mut Vec<T>, new: impl IntoIterator<Item = T>) -> Option<(u32, u32)> {
    let first = u32::try_from(list.len()).ok()?;
    list.extend(new);
    let len = u32::try_from(list.len()).ok()? - first;
    Some((first, len))
}

impl Unexpected {
    fn add(list: &mut Vec<u32>, places: &mut Vec<u32>) -> Option<Self> {
        places.sort_unstable();
        places.dedup();
        let (first, len) = add(list, places.drain(..))?;
        Some(Self {
            first,
            len,
            suspect: 0,
            returns: 0,
        })
    }

    /// No open call returns to one of them; `all` are those of all scenes.
    #[inline]
    fn holds(&mut self, all: &mut [u32], rules: &mut Rules<'_>) -> bool {
        if self.returns != rules.places.returns() {
            self.suspect(all, rules);
        }
        let suspect = list(all, self.first, self.suspect);
        !suspect.iter().any(|&place| rules.expects(place))
    }

    /// Puts the places that some call returns to before the others.
    #[cold]
    fn suspect(&mut self, all: &mut [u32], rules: &Rules<'_>) {
        let all = all.get_mut(range(self.first, self.len)).unwrap_or(&mut []);
        all.sort_unstable_by_key(|&place| !rules.places.may_be_returned_to(place));
        let suspect = all.partition_point(|&place| rules.places.may_be_returned_to(place));
        (self.suspect, self.returns) = (suspect as u32, rules.places.returns());
    }
}

/// All transfers between the blocks of a path, but where one simply follows the other.
fn all_turns(path: u32, runs: Runs<'_>, rules: &mut Rules<'_>, ends: &mut Ends, turns: &mut Vec<Turn>) {
    let mut offset = 0;
    let mut last = None;
    for &block in runs.paths.parts(path) {
        let Some((first, end)) = ends.of(block, runs, rules) else {
            continue;
        };
        if let Some(from) = last.replace(end)
            && !from.falls(first)
        {
            turns.push(Turn {
                from,
                to: first,
                offset,
            });
        }
        offset += runs.blocks.count(block) as u32;
    }
}
