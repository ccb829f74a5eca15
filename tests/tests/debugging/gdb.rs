//! Comparison with GDB's `record full`. The same commands in recordings of the same programs must
//! reach the same positions with the same stacks. Every difference needs a reason that
//! `docs/gdb.md` names. Command lines of GDB's users must work too.

mod judge;
mod lines;
mod ours;
mod reasons;
mod registers;
mod scripts;
use backtrail_tests::backtrail::repository;
use backtrail_tests::programs::{self, Ending, Variant, find};
use backtrail_tests::random::Random;
use judge::{Here, Trial};
use ours::Recording;
use reasons::{Case, Reason, Reasons};
use scripts::SCRIPTS;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How often a move is repeated to find a stop that GDB passes.
const FARTHER: usize = 8;

/// The programs for random walks, in addition to those of other tests.
const PROGRAMS: [&str; 9] = [
    "verbs",
    "verbs_optimized",
    "shapes",
    "shapes_optimized",
    "recursion",
    "tailcall",
    "dispatch",
    "jumps",
    "inlined",
];

/// The moves of a walk. The moves before the last one of a row prepare it.
const MOVES: &[&[&str]] = &[
    &["step"],
    &["next"],
    &["stepi"],
    &["nexti"],
    &["finish"],
    &["reverse-step"],
    &["reverse-next"],
    &["reverse-stepi"],
    &["reverse-nexti"],
    &["reverse-finish"],
    &["up", "finish"],
    &["up", "reverse-finish"],
    &["stepi 5"],
    &["reverse-stepi 7"],
];

/// Moves to a location.
const TO_LOCATIONS: &[&[&str]] = &[
    &["break LOCATION", "continue"],
    &["break LOCATION", "reverse-continue"],
    &["break LOCATION", "continue", "continue"],
    &["break LOCATION", "reverse-continue", "reverse-continue"],
    &["break LOCATION", "continue", "reverse-continue"],
    &["tbreak LOCATION", "continue", "reverse-continue"],
    &["tbreak LOCATION", "next"],
    &["break LOCATION", "reverse-next"],
    &["break LOCATION", "finish"],
    &["advance LOCATION"],
    &["until LOCATION"],
    &["until"],
];

/// Locations in programs: functions, and lines with one or more addresses.
const LOCATIONS: &[(&str, &[&str])] = &[
    (
        "verbs",
        &[
            "leaf",
            "factorial",
            "apply",
            "store",
            "verbs.c:29",
            "verbs.c:44",
            "verbs.c:50",
        ],
    ),
    (
        "verbs_optimized",
        &["leaf", "jump", "store", "bounded", "verbs.c:43"],
    ),
    (
        "shapes",
        &[
            "measure",
            "largest",
            "Oblong::area",
            "read",
            "shapes.cpp:22",
            "shapes.cpp:39",
            "shapes.cpp:61",
        ],
    ),
    ("recursion", &["sum", "ackermann", "is_odd", "recursion.c:12"]),
    ("dispatch", &["run", "square", "halve", "dispatch.c:24"]),
    ("jumps", &["dive", "leave", "round_trip", "jumps.c:12"]),
];

/// How often each reason occurred.
type Met = BTreeMap<Reason, usize>;

/// A program in both debuggers.
struct Program {
    name: &'static str,
    executable: PathBuf,
    recording: Recording,
    /// GDB's record, with one entry per instruction.
    path: Vec<Here>,
    /// The index, counted from the breakpoint in main, by GDB's number. GDB counts each repetition.
    index: Vec<usize>,
}

/// GDB cannot restore vector registers on every machine.
fn without_vectors(program: &programs::Program) -> programs::Program {
    let flags = match program.flags {
        ["-O0"] => &["-O0", "-mgeneral-regs-only"],
        ["-O1"] => &["-O1", "-mgeneral-regs-only"],
        ["-O2"] => &["-O2", "-mgeneral-regs-only"],
        flags => panic!("{flags:?}"),
    };
    programs::Program { flags, ..*program }
}

fn trial(from: Option<usize>, commands: &[&str]) -> Trial {
    Trial {
        from,
        commands: commands.iter().map(|&command| command.to_owned()).collect(),
    }
}

impl Program {
    /// Records in both debuggers, checks that the instructions are the same, and returns GDB's
    /// answers.
    fn in_both(name: &'static str, variant: Variant, plan: &[Trial]) -> (Self, Vec<judge::Answer>) {
        Self::recorded_in_both(name, variant, plan, &[])
    }

    /// Runs a program in GDB, and records it with options.
    fn recorded_in_both(
        name: &'static str,
        variant: Variant,
        plan: &[Trial],
        options: &[&str],
    ) -> (Self, Vec<judge::Answer>) {
        let program = &without_vectors(find(name).unwrap());
        let executable = backtrail_tests::build(program, variant).unwrap();
        let exits = matches!(program.ending, Ending::Exit(_));
        let (recorded, answers) = judge::judge(&executable, exits, plan);
        let recording = Recording::of(&executable, options);
        let (mut path, mut index): (Vec<Here>, Vec<usize>) = Default::default();
        for here in recorded {
            match path.last_mut() {
                Some(last) if last.pc == here.pc => last.repeats = true,
                _ => path.push(here),
            }
            index.push(path.len() - 1);
        }
        let addresses: Vec<u64> = path.iter().map(|here| here.pc).collect();
        assert_eq!(
            recording.path.get(..addresses.len()),
            Some(&addresses[..]),
            "{name}"
        );
        let program = Self {
            name,
            executable,
            recording,
            path,
            index,
        };
        (program, answers)
    }

    /// Compares the end of each trial, starting where GDB started, and counts the reasons of
    /// differences.
    fn compare(&self, plan: &[Trial], answers: &[judge::Answer], met: &mut Met) {
        let from_there = |(trial, answer): (&Trial, &judge::Answer)| Trial {
            from: Some(self.index[answer.start]),
            ..trial.clone()
        };
        let plan: Vec<Trial> = plan.iter().zip(answers).map(from_there).collect();
        let ours = self.recording.answers(&plan);
        let (same, elsewhere): (Vec<usize>, Vec<usize>) = (0..plan.len())
            .partition(|&at| ours[at].at == self.place(&answers[at]) && ours[at].error.is_none());
        let mut explained: Vec<(usize, Result<Reasons, String>)> = Vec::new();
        for (at, farther) in elsewhere.iter().zip(self.farther(&plan, &elsewhere)) {
            let case = Case {
                path: &self.path,
                start: plan[*at].from.unwrap() as i64,
                commands: &plan[*at].commands,
                ours: &farther.moves,
                unprepared: farther.unprepared,
                gdb: self.place(&answers[*at]),
                refused: answers[*at].error.is_some(),
                stack: &farther.stack,
            };
            let why = match &ours[*at].error {
                Some(error) if answers[*at].error.is_none() => Err(error.clone()),
                Some(_) => Ok(Reasons::new()),
                None => case.explain().map_err(|why| {
                    let their = &answers[*at].error;
                    format!("ours {:?}, GDB's {} {their:?}: {why}", farther.moves, case.gdb)
                }),
            };
            explained.push((*at, why));
        }
        for at in same {
            explained.push((at, reasons::of_stacks(&ours[at].frames, &answers[at].frames)));
        }
        let mut unexplained = Vec::new();
        for (at, reasons) in explained {
            match reasons {
                Ok(reasons) => reasons
                    .into_iter()
                    .for_each(|reason| *met.entry(reason).or_default() += 1),
                Err(why) => {
                    let (commands, from) = (plan[at].commands.join(", "), plan[at].from.unwrap());
                    unexplained.push(format!("{commands} from {from}: {why}"));
                }
            }
        }
        eprintln!(
            "{}: {} moves, {} elsewhere",
            self.name,
            plan.len(),
            elsewhere.len()
        );
        let count = unexplained.len();
        unexplained.truncate(40);
        assert!(
            count == 0,
            "{}: {count} unexplained\n{}",
            self.name,
            unexplained.join("\n")
        );
    }

    /// Returns the position that GDB reached.
    fn place(&self, answer: &judge::Answer) -> i64 {
        self.index[answer.number] as i64
    }

    fn farther(&self, plan: &[Trial], elsewhere: &[usize]) -> Vec<Farther> {
        let mut trials = Vec::new();
        for trial in elsewhere.iter().map(|&at| &plan[at]) {
            let last = trial.commands.last().unwrap();
            let with = |commands: Vec<String>| Trial {
                from: trial.from,
                commands,
            };
            for more in 0..FARTHER {
                let again = std::iter::repeat_n(last.clone(), more);
                trials.push(with(trial.commands.iter().cloned().chain(again).collect()));
            }
            trials.push(with(vec![last.clone()]));
            trials.push(with(Vec::new()));
        }
        let answers = self.recording.answers(&trials);
        let of_trial = |answers: &[ours::Answer]| {
            let [moves @ .., unprepared, here] = answers else {
                panic!("no answers")
            };
            Farther {
                moves: moves.iter().map(|answer| answer.at).collect(),
                unprepared: unprepared.at,
                stack: here.frames.clone(),
            }
        };
        answers.chunks(FARTHER + 2).map(of_trial).collect()
    }

    /// Makes the moves of a script in turn. Each must reach GDB's position, except that the last
    /// one may pass an end of GDB's record.
    fn follow(&self, plan: &[Trial], answers: &[judge::Answer]) {
        let ours = self.recording.answers(plan);
        let end = self.path.len() as i64 - 1;
        for (number, ((trial, ours), gdb)) in plan.iter().zip(&ours).zip(answers).enumerate() {
            let what = format!("{}, move {number}: {}", self.name, trial.commands[0]);
            assert_eq!(ours.error, None, "{what}");
            assert_eq!(ours.at.clamp(0, end), self.place(gdb), "{what}");
            if ours.at != self.place(gdb) {
                assert_eq!(number, plan.len() - 1, "{what}");
            } else if let Err(why) = reasons::of_stacks(&ours.frames, &gdb.frames) {
                panic!("{what}: {why}");
            }
        }
    }
}

/// Additional results for a move that ended elsewhere.
struct Farther {
    moves: Vec<i64>,
    unprepared: i64,
    stack: Vec<ours::Frame>,
}

/// Returns a walk of `moves` moves. Occasionally, it restarts elsewhere, and goes to a breakpoint
/// or a location.
fn walk(name: &str, random: &mut Random, moves: usize) -> Vec<Trial> {
    let locations = LOCATIONS.iter().find(|(of, _)| *of == name);
    let mut plan = vec![trial(Some(0), &["stepi"])];
    for _ in 1..moves {
        // A breakpoint must not stop the next move.
        let anew = plan
            .last()
            .is_some_and(|last: &Trial| last.commands[0].contains("break"));
        let from = (anew || random.once_in(6)).then(|| random.below(1 << 30));
        plan.push(match (from, locations) {
            (Some(_), Some((_, locations))) if !anew => {
                let location = random.pick(locations);
                let there = TO_LOCATIONS[random.below(TO_LOCATIONS.len())];
                let commands: Vec<String> = there
                    .iter()
                    .map(|line| line.replace("LOCATION", location))
                    .collect();
                Trial { from, commands }
            }
            _ => trial(from, random.pick(MOVES)),
        });
    }
    plan
}

fn compare_walk(name: &'static str, moves: usize) {
    if judge::is_there() {
        walked(name, moves, 7);
    }
}

/// Returns the reasons that occurred in a walk.
fn walked(name: &'static str, moves: usize, seed: u64) -> Met {
    let plan = walk(name, &mut Random::new(seed), moves);
    let (program, answers) = Program::in_both(name, Variant::Static, &plan);
    let mut met = Met::new();
    program.compare(&plan, &answers, &mut met);
    met
}

#[test]
fn scripts_come_to_the_same_places() {
    if !judge::is_there() {
        return;
    }
    for (name, script) in SCRIPTS {
        let mut plan = vec![trial(Some(0), &["info line"])];
        plan.extend(script.iter().map(|command| trial(None, &[command])));
        let (program, answers) = Program::in_both(name, Variant::Static, &plan);
        program.follow(&plan, &answers);
    }
}

/// `BACKTRAIL_GDB_SEED` and `BACKTRAIL_GDB_MOVES` select other and longer walks.
#[test]
#[ignore = "minutes of walks with GDB: cargo xtask test-all"]
fn long_walks_meet_every_reason() {
    if !judge::is_there() {
        return;
    }
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seed, moves) = (
        number("BACKTRAIL_GDB_SEED", 5),
        number("BACKTRAIL_GDB_MOVES", 1500),
    );
    let mut met = Met::new();
    for name in PROGRAMS {
        for (reason, count) in walked(name, moves as usize, seed) {
            eprintln!("{name}: {count} × {}", reason.name());
            *met.entry(reason).or_default() += count;
        }
    }
    for reason in Reason::ALL {
        assert!(met.contains_key(&reason), "never met: {}", reason.name());
    }
}

#[test]
fn every_reason_is_in_the_documentation() {
    let page = std::fs::read_to_string(repository().join("docs/gdb.md")).unwrap();
    for reason in Reason::ALL {
        assert!(
            page.contains(&format!("| {} |", reason.name())),
            "{}",
            reason.name()
        );
    }
}

#[test]
fn verbs_in_c() {
    compare_walk("verbs", 300);
}

#[test]
fn verbs_in_optimized_c() {
    compare_walk("verbs_optimized", 300);
}

#[test]
fn verbs_in_cpp() {
    compare_walk("shapes", 300);
}

#[test]
fn verbs_in_optimized_cpp() {
    compare_walk("shapes_optimized", 300);
}

#[test]
fn verbs_in_recursion() {
    compare_walk("recursion", 200);
}

#[test]
fn verbs_in_tail_calls() {
    compare_walk("tailcall", 200);
}

#[test]
fn verbs_in_indirect_calls() {
    compare_walk("dispatch", 200);
}

#[test]
fn verbs_in_long_jumps() {
    compare_walk("jumps", 200);
}

#[test]
fn verbs_in_inlined_copies() {
    compare_walk("inlined", 200);
}
