//! What a path does to the open calls, found out once.

use super::ends::Ends;
use super::phrases::{self, Found, Phrases, Row};
use super::rules::{Rules, Source};
use super::scene::Stage;
use super::trial::Trial;
use super::turns::{self, Turn};
use crate::Runs;
use crate::forest::places::Place;
use crate::forest::stack::{Level, NONE};
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
    /// The first, how many; [`Scenes::NEW`], [`Scenes::MET`].
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

/// The script of most paths, in short: those that go on as the first time, with a single scene or none.
#[derive(Clone, Copy)]
pub(super) struct Line {
    /// The numbers of its first place, and of the place that was next; [`NONE`]: none.
    pub first: u32,
    pub next: u32,
    /// Its instructions.
    pub count: u32,
    /// Its scene; with [`Line::STILL`] the function that the innermost call has to be of, for nothing to change.
    pub scene: u32,
}

impl Line {
    /// No number of a scene has it, and those of no functions do.
    const STILL: u32 = 1 << 31;
    /// The number of no function: there is more to the script.
    const MORE: u32 = Level::ANY - 1;
    /// A path that is not known: none goes on to its first place.
    pub const UNKNOWN: Self = Self {
        first: NONE - 1,
        next: NONE,
        count: 0,
        scene: Self::MORE,
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

/// The scripts of paths.
#[derive(Default)]
pub(super) struct Scripts {
    /// By path.
    scripts: Vec<Script>,
    lines: Vec<Line>,
    stage: Stage,
    /// All transfers of a path that does not always keep to its script.
    turns: FxHashMap<u32, Vec<Turn>>,
    trial: Trial,
    ends: Ends,
    /// The transfers of the path that a script is written for.
    written: Vec<Turn>,
    phrases: Phrases,
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

    /// Goes over paths as long as their lines say all of each, or those of phrases do. The path before went on to the first of them, which
    /// begins with instruction `index`; the next mark stands before instruction `mark`. Gives how many paths those are, and the
    /// instruction behind.
    pub fn run_lines(
        &mut self,
        paths: &[u32],
        runs: Runs<'_>,
        index: u64,
        mark: u64,
        rules: &mut Rules<'_>,
    ) -> (usize, u64) {
        let rest = self.phrases.rest();
        if rest == 0 {
            return self.run_lines_of::<true>(paths, runs, index, mark, rules);
        }
        let paths = paths.get(..rest).unwrap_or(paths);
        let ran = self.run_lines_of::<false>(paths, runs, index, mark, rules);
        // The one behind them is gone over without its line.
        self.phrases.rested(ran.0 + 1);
        ran
    }

    /// The same, with phrases as long as it is worth it to look for any, or without.
    #[inline(never)]
    fn run_lines_of<const PHRASES: bool>(
        &mut self,
        paths: &[u32],
        runs: Runs<'_>,
        mut index: u64,
        mark: u64,
        rules: &mut Rules<'_>,
    ) -> (usize, u64) {
        let Some(&first) = paths.first() else {
            return (0, index);
        };
        let mut line = self.line(first);
        let (mut done, mut alone) = (0, false);
        loop {
            let (mut now, mut len) = (line, 1);
            if PHRASES
                && !alone
                && let Some([row @ .., next]) = ahead(paths, done)
            {
                match self.phrases.find(row) {
                    Found::Phrase(phrase) => (now, len) = (phrase, row.len()),
                    Found::None => {}
                    Found::Rest => return (done, index),
                    Found::Often => self.learn_row(row, *next, runs, rules),
                }
            }
            let Some(&next) = paths.get(done + len) else {
                return (done, index);
            };
            let next = self.line(next);
            let behind = index + u64::from(now.count);
            let ran = now.next == next.first
                && behind < mark
                && match now.scene {
                    Level::ANY => true,
                    scene if scene < Line::STILL => self.stage.run(scene, index, rules),
                    home => rules.inside() | Line::STILL == home,
                };
            if ran {
                (index, line) = (behind, next);
                done += len;
                alone = false;
            } else if len > 1 {
                self.phrases.fails();
                alone = true;
            } else {
                return (done, index);
            }
        }
    }

    /// Makes a phrase of paths that come one after the other again and again, and then `next`, if it is known beforehand what they do.
    #[cold]
    fn learn_row(&mut self, row: &Row, next: u32, runs: Runs<'_>, rules: &mut Rules<'_>) {
        let mut turns = std::mem::take(&mut self.written);
        turns.clear();
        let line = self
            .turns_of(row, next, runs, rules, &mut turns)
            .filter(|_| turns.len() <= phrases::MOST_TURNS)
            .and_then(|script| self.write_line_of(script, &turns, rules));
        if let Some(line) = line {
            self.phrases.insert(*row, line);
        }
        self.written = turns;
    }

    /// Lists the transfers of paths and those between them, the last to the path `next`. Gives the script of all of them, without scenes.
    fn turns_of(
        &mut self,
        row: &Row,
        next: u32,
        runs: Runs<'_>,
        rules: &mut Rules<'_>,
        turns: &mut Vec<Turn>,
    ) -> Option<Script> {
        let mut all = *self.of(row[0], runs, rules)?;
        all.count = 0;
        for (at, &path) in row.iter().enumerate() {
            let script = *self.of(path, runs, rules)?;
            let behind = self
                .of(row.get(at + 1).copied().unwrap_or(next), runs, rules)?
                .first;
            let before = turns.len();
            turns::list(path, runs, rules, &mut self.ends, turns);
            if !script.end.falls(behind) {
                turns.push(script.turn_to(behind));
            }
            for turn in turns.iter_mut().skip(before) {
                turn.offset = turn.offset.checked_add(all.count)?;
            }
            all.count = all.count.checked_add(script.count)?;
            all.next = behind.id;
        }
        Some(all)
    }

    /// The line of what has these transfers, if one says all of it.
    fn write_line_of(&mut self, script: Script, turns: &[Turn], rules: &mut Rules<'_>) -> Option<Line> {
        let onward = match turns.is_empty() {
            true => Scenes {
                len: 0,
                ..Scenes::NOT_YET
            },
            false => self.write(script.first.function, turns, rules)?,
        };
        let line = self.line_of(&Script { onward, ..script });
        (line.scene != Line::MORE).then_some(line)
    }

    /// See [`Phrases::make_at_once`].
    #[cfg(test)]
    pub fn make_phrases_at_once(&mut self) {
        self.phrases.make_at_once();
    }

    #[inline]
    fn line(&self, path: u32) -> Line {
        self.lines.get(path as usize).copied().unwrap_or(Line::UNKNOWN)
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
        for number in scenes.first..scenes.first + scenes.len {
            if !self.stage.run(number, course.index, rules) {
                return self.follow(course, self.stage.begin(number), rules);
            }
            if let Some(turn) = self.stage.turn(number) {
                turn.happen(course.index, rules);
            }
        }
    }

    /// Goes over a path by its transfers, from behind the one before its instruction `begin`, if there is one.
    #[cold]
    fn follow(&mut self, course: &Course<'_>, begin: u32, rules: &mut Rules<'_>) {
        let turns = self.turns.entry(course.path).or_insert_with(|| {
            let mut turns = Vec::new();
            turns::list(course.path, course.runs, rules, &mut self.ends, &mut turns);
            turns
        });
        // None is before the first instruction.
        let from = turns.partition_point(|turn| turn.offset <= begin);
        let script = self.scripts.get(course.path as usize);
        let next = script.zip(course.next).map(|(script, next)| script.turn_to(next));
        for turn in turns.get(from..).unwrap_or(&[]).iter().chain(&next) {
            turn.happen(course.index, rules);
        }
    }

    /// A path is new.
    #[cold]
    fn meet(&mut self, path: u32, runs: Runs<'_>, rules: &mut Rules<'_>) -> Option<()> {
        let parts = runs.paths.parts(path);
        let first = self.ends.of(*parts.first()?, runs, rules)?.first;
        let end = self.ends.of(*parts.last()?, runs, rules)?.last;
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
            self.lines.resize(self.scripts.len(), Line::UNKNOWN);
        }
        *self.scripts.get_mut(at)? = script;
        self.write_line(at);
        Some(())
    }

    /// Goes over a path that has no such scenes yet.
    #[cold]
    fn learn(&mut self, course: &Course<'_>, rules: &mut Rules<'_>) {
        let at = course.path as usize;
        let Some(&(mut script)) = self.scripts.get(at) else {
            return;
        };
        let mut turns = std::mem::take(&mut self.written);
        turns.clear();
        turns::list(course.path, course.runs, rules, &mut self.ends, &mut turns);
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
            turn.happen(course.index, rules);
        }
        self.written = turns;
        if let Some(known) = self.scripts.get_mut(at) {
            *known = script;
        }
        self.write_line(at);
    }

    /// Writes scenes of the transfers of a path that begins in the function `home`. `None`: there are as many as can be told
    /// apart.
    fn write(&mut self, home: u32, turns: &[Turn], rules: &mut Rules<'_>) -> Option<Scenes> {
        let first = u32::try_from(self.stage.len()).ok()?;
        self.write_scenes(home, turns, rules)?;
        let len = u32::try_from(self.stage.len()).ok()? - first;
        let still = if len == 1 { self.stage.take_still() } else { None };
        Some(match still {
            Some(home) => Scenes { first, len: 0, home },
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
            self.stage.write(&mut self.trial, begin, turn, rules)?;
            let Some(turn) = turn else { return Some(()) };
            (home, begin) = (turn.to.function, turn.offset);
            at += done + 1;
            if at == turns.len() {
                return Some(());
            }
        }
    }

    /// Writes down in short what is known of a path.
    fn write_line(&mut self, path: usize) {
        let line = self.scripts.get(path).map(|script| self.line_of(script));
        if let Some((known, line)) = self.lines.get_mut(path).zip(line) {
            *known = line;
        }
    }

    fn line_of(&self, script: &Script) -> Line {
        let Scenes { first, len, home } = script.onward;
        Line {
            first: script.first.id,
            next: script.next,
            count: script.count,
            scene: match len {
                0 => home | Line::STILL,
                1 if first < Line::STILL && self.stage.turn(first).is_none() => first,
                _ => Line::MORE,
            },
        }
    }
}

/// The row that is next, and the path behind it.
#[inline]
fn ahead(paths: &[u32], done: usize) -> Option<&[u32; phrases::LEN + 1]> {
    paths.get(done..)?.first_chunk()
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
