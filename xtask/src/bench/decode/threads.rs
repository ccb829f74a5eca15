//! One thread and two, on all of each stream.

use super::meter::Meter;
use super::options::DecodeOptions;
use crate::Failure;
use crate::bench::machine;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const JOBS: u64 = 2;

/// Measures each stream with `backtrail-bench threads`, in rounds over all streams.
///
/// The machine's speed varies by the minute, so the turns of a stream are spread over the rounds.
/// In a round each stream has the same time, so slow streams have fewer turns.
pub fn measure(meter: &Meter, streams: &[PathBuf], options: &DecodeOptions) -> Vec<Result<Value, Failure>> {
    let mut measured: Vec<Result<Measured, Failure>> =
        streams.iter().map(|_| Ok(Measured::default())).collect();
    for round in 1..=options.rounds() {
        eprintln!(
            "threads, round {round} of {}: load {}",
            options.rounds(),
            machine::load()
        );
        for (stream, measured) in streams.iter().zip(&mut measured) {
            if let Ok(known) = measured
                && let Err(error) = known.add_round(meter, stream, options.round_seconds())
            {
                *measured = Err(error);
            }
        }
    }
    let value = |measured: Result<Measured, Failure>| measured.map(Measured::into_value);
    measured.into_iter().map(value).collect()
}

/// The measurements of a stream.
#[derive(Default)]
struct Measured {
    /// Of packets.
    bytes: Value,
    /// By one thread and by two, warm.
    turns: Vec<Value>,
    /// The first decodes of processes.
    cold_one: Vec<Value>,
    cold_together: Vec<Value>,
}

impl Measured {
    /// A process by one thread, and a process by two that goes on with the turns.
    fn add_round(&mut self, meter: &Meter, bundle: &Path, seconds: f64) -> Result<(), Failure> {
        let ask = |jobs: u64, seconds: f64| {
            let asked = [("--jobs", jobs.to_string()), ("--seconds", seconds.to_string())];
            meter.ask("threads", bundle, &asked)
        };
        self.cold_one.push(ask(1, 0.0)?["cold"].take());
        let mut told = ask(JOBS, seconds)?;
        self.cold_together.push(told["cold"].take());
        self.bytes = told["bytes"].take();
        if let Value::Array(turns) = told["turns"].take() {
            self.turns.extend(turns);
        }
        Ok(())
    }

    fn into_value(self) -> Value {
        json!({
            "jobs": JOBS,
            "bytes": self.bytes,
            "turns": self.turns,
            "cold": { "one": self.cold_one, "together": self.cold_together },
        })
    }
}

/// The summary of a stream.
pub struct Figures {
    /// How many there were.
    pub turns: usize,
    /// Medians of the turns, in seconds.
    pub one: Option<f64>,
    pub together: Option<f64>,
    /// Speedup of all threads over one, and of as many independent decodes: medians of the turns.
    pub times: Option<f64>,
    /// The same of the best of each.
    pub best: Option<f64>,
    /// Medians of the cold decodes.
    pub cold_one: Option<f64>,
    pub cold_together: Option<f64>,
}

impl Figures {
    /// Out of what was measured.
    pub fn of(measured: &Value) -> Self {
        let turns: Vec<&Value> = measured["turns"].as_array().into_iter().flatten().collect();
        let all = |of: &dyn Fn(&Value) -> Option<f64>| -> Vec<f64> {
            turns.iter().filter_map(|turn| of(turn)).collect()
        };
        let seconds = |key: &str| all(&|turn| turn[key].as_f64());
        let times = |key: &str| all(&|turn| Some(turn["one"].as_f64()? / turn[key].as_f64()?));
        let best = |key: &str| Some(least(seconds("one"))? / least(seconds(key))?);
        let cold = |key: &str| {
            let runs = measured["cold"][key].as_array().into_iter().flatten();
            median(runs.filter_map(Value::as_f64).collect())
        };
        Self {
            turns: turns.len(),
            one: median(seconds("one")),
            together: median(seconds("together")),
            times: median(times("together")),
            best: best("together"),
            cold_one: cold("one"),
            cold_together: cold("together"),
        }
    }
}

fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::min)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_medians_and_of_the_best() {
        let turn = |one: f64, together: f64| json!({ "one": one, "together": together });
        let turns = [turn(2.0, 1.0), turn(3.0, 2.0), turn(2.0, 1.6)];
        let cold = json!({ "one": [5.0, 3.0, 4.0], "together": [2.0, 2.0, 9.0] });
        let figures = Figures::of(&json!({ "jobs": 2, "turns": turns, "cold": cold }));
        assert_eq!(figures.turns, 3);
        assert_eq!((figures.one, figures.together), (Some(2.0), Some(1.6)));
        assert_eq!((figures.times, figures.best), (Some(1.5), Some(2.0)));
        assert_eq!((figures.cold_one, figures.cold_together), (Some(4.0), Some(2.0)));
        assert_eq!(Figures::of(&Value::Null).times, None);
    }
}
