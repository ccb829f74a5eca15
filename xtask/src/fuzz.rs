//! `cargo xtask fuzz`: the mutation tests of hostile input, for as long as one likes.

mod slice;
mod targets;

use crate::{Failure, shell};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use slice::{Outcome, Programs};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use targets::Target;

/// How long a target runs before it is another's turn: each slice has a seed of its own.
const SLICE: Duration = Duration::from_secs(60);

/// Runs every target of `tests/tests/hostile` for `seconds` seconds, as tests.
pub fn run(seconds: u64) -> Result<(), Failure> {
    shell::run(
        shell::cargo()
            .args([
                "test",
                "--package",
                "backtrail-tests",
                "--test",
                "hostile",
                "--",
                "--nocapture",
            ])
            .env("BACKTRAIL_FUZZ_SECONDS", seconds.to_string()),
    )
}

/// The options of `--hours`.
#[derive(Debug, PartialEq)]
pub struct Long {
    time: Duration,
    /// The seed of the first round.
    seed: u64,
    targets: Vec<Target>,
}

impl Long {
    /// Reads `HOURS [--seed N] [TARGET…]`.
    pub fn parse(arguments: &[&str]) -> Result<Self, Failure> {
        let [hours, rest @ ..] = arguments else {
            return Err("--hours needs a number".to_owned());
        };
        let hours: f64 = hours
            .parse()
            .map_err(|_| format!("'{hours}' is not a number of hours"))?;
        let time = Duration::try_from_secs_f64(hours * 3600.0);
        let time = time.map_err(|_| format!("'{hours}' is not a number of hours"))?;
        let (seed, names) = match rest {
            ["--seed", seed, names @ ..] => {
                let seed = seed.parse().map_err(|_| format!("'{seed}' is not a seed"))?;
                (seed, names)
            }
            names => (1, names),
        };
        Ok(Self {
            time,
            seed,
            targets: targets::named(names)?,
        })
    }
}

/// The result of a target in all its slices.
#[derive(Clone, Debug, Default)]
struct Sum {
    cases: u64,
    accepted: u64,
    slowest: Duration,
    most_kib: u64,
    seconds: u64,
    finds: Vec<String>,
}

impl Sum {
    fn add(&mut self, outcome: Outcome) {
        self.seconds += outcome.took.as_secs();
        match outcome.result {
            Ok(report) => {
                self.cases += report.cases;
                self.accepted += report.accepted;
                self.slowest = self.slowest.max(report.slowest);
                self.most_kib = self.most_kib.max(report.kib);
            }
            Err(find) => self.finds.push(find),
        }
    }
}

/// Runs the targets in turns until the time is over or Ctrl-C. Failing cases are stored, and the
/// run continues.
pub fn long(wanted: &Long) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| format!("cannot catch Ctrl-C: {error}"))?;
    }
    let programs = Programs::build(&wanted.targets)?;
    let began = Instant::now();
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    let mut progress = Progress::default();
    let mut round = 0;
    'all: loop {
        for target in &wanted.targets {
            let left = wanted.time.saturating_sub(began.elapsed());
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                break 'all;
            }
            let seed = wanted.seed.wrapping_add(round);
            let finds: usize = sums.values().map(|sum| sum.finds.len()).sum();
            progress.show(&format!(
                "[{} of {}] {} with seed {seed}; {finds} finds",
                clock(began.elapsed()),
                clock(wanted.time),
                target.name
            ));
            let time = SLICE.min(left.max(Duration::from_secs(1)));
            let Some(outcome) = programs.run(target, seed, time, &stop)? else {
                break 'all;
            };
            if let Err(find) = &outcome.result {
                progress.say(find);
            }
            sums.entry(target.name).or_default().add(outcome);
        }
        round += 1;
    }
    progress.say(&table(&sums));
    if let Ok(used) = getrusage(UsageWho::RUSAGE_CHILDREN) {
        let seconds = |time: TimeVal| time.num_milliseconds() as f64 / 1000.0;
        let hours = (seconds(used.user_time()) + seconds(used.system_time())) / 3600.0;
        progress.say(&format!("{hours:.2} hours of processor time, with the build"));
    }
    match sums.values().map(|sum| sum.finds.len()).sum::<usize>() {
        0 => Ok(()),
        finds => Err(format!("{finds} cases failed; the commands above repeat them")),
    }
}

/// A line that is written over on a terminal, and elsewhere one after the other.
#[derive(Default)]
struct Progress {
    shown: bool,
}

impl Progress {
    fn show(&mut self, line: &str) {
        if std::io::stdout().is_terminal() {
            print!("\r\x1b[K{line}");
            let _ = std::io::stdout().flush();
            self.shown = true;
        } else {
            println!("{line}");
        }
    }

    fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.shown) {
            println!();
        }
        println!("{text}");
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A row for each target.
fn table(sums: &BTreeMap<&str, Sum>) -> String {
    let mut text = format!(
        "{:24} {:>9} {:>12} {:>12} {:>10} {:>10} {:>5}",
        "target", "time", "cases", "accepted", "slowest", "memory", "finds"
    );
    for (name, sum) in sums {
        text += &format!(
            "\n{name:24} {:>9} {:>12} {:>12} {:>8.2} s {:>6} KiB {:>5}",
            clock(Duration::from_secs(sum.seconds)),
            sum.cases,
            sum.accepted,
            sum.slowest.as_secs_f64(),
            sum.most_kib,
            sum.finds.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_seed_and_targets_are_read() {
        let long = Long::parse(&["0.5", "--seed", "7", "elf", "links"]).unwrap();
        assert_eq!((long.time, long.seed), (Duration::from_secs(1800), 7));
        assert_eq!(long.targets.len(), 2);
        assert_eq!(Long::parse(&["2"]).unwrap().seed, 1);
        for wrong in [
            &[][..],
            &["x"],
            &["-1"],
            &["nan"],
            &["1", "--seed"],
            &["1", "nothing"],
        ] {
            assert!(Long::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn table_sums_the_slices() {
        let report = |cases, slowest| Outcome {
            took: Duration::from_secs(60),
            result: Ok(slice::SliceReport {
                cases,
                accepted: 1,
                slowest: Duration::from_millis(slowest),
                kib: cases,
            }),
        };
        let mut sum = Sum::default();
        sum.add(report(5, 30));
        sum.add(report(7, 20));
        sum.add(Outcome {
            took: Duration::from_secs(3),
            result: Err("elf: a find".to_owned()),
        });
        let text = table(&BTreeMap::from([("elf", sum)]));
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["elf", "0:02:03", "12", "2", "0.03", "s", "7", "KiB", "1"]);
    }
}
