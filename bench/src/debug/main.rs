//! Measures for `cargo xtask bench debug` how long debugger commands take at positions all over a
//! history.
//!
//! `backtrail-bench-debug BUNDLE POSITIONS [VALUES]` prints one JSON object. The time of a command
//! includes rendering its result as text, but not moving between positions. `VALUES` is a bundle
//! with recorded values.

mod values;

use backtrail_console::output::Text;
use backtrail_console::{Output, commands};
use backtrail_debugger::{Navigator, OpenOptions, Session};
use backtrail_decoder::Watch;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// An error message of one sentence.
type Failure = String;

/// Verbs and commands that depend on the position.
const AT_POSITION: &[&str] = &[
    "stepi",
    "reverse-stepi",
    "nexti",
    "reverse-nexti",
    "step",
    "reverse-step",
    "next",
    "reverse-next",
    "finish",
    "reverse-finish",
    "backtrace",
    "when",
    "list",
    "calls",
    "history",
    "info threads",
    "info registers",
    "info locals",
];

/// Verbs that go to breakpoints, with the approximate number of calls of the breakpoint's function.
const TO_BREAKPOINTS: &[(&str, u64)] = &[
    ("continue", 1000),
    ("reverse-continue", 1000),
    ("reverse-continue", 10),
];

/// Commands over the whole history, for a function with many calls.
const WHOLE_HISTORY: &[&str] = &[
    "count FUNCTION",
    "callers FUNCTION",
    "first FUNCTION",
    "last FUNCTION",
    "run-to-call 100 of FUNCTION",
    "latency FUNCTION",
    "latency FUNCTION --instructions",
    "slowest FUNCTION",
    "search FUNCTION",
];

/// The number of runs of each of these commands.
const RUNS: usize = 5;

/// The total time of a command in milliseconds after which it is not run again. Slow commands are
/// measured at fewer positions.
const TIME_LIMIT: f64 = 4000.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("backtrail-bench-debug: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<Value, Failure> {
    let (bundle, positions, with_values) = match arguments {
        [bundle, positions] => (bundle, positions, None),
        [bundle, positions, with_values] => (bundle, positions, Some(with_values)),
        _ => return Err("usage: BUNDLE POSITIONS [VALUES]; see `cargo xtask bench debug`".to_owned()),
    };
    let positions: usize = positions
        .parse()
        .map_err(|_| format!("'{positions}' is not a number"))?;
    let begin = Instant::now();
    let mut navigator = opened(Path::new(bundle))?;
    let open = milliseconds(begin);
    let mut bench = Bench::new(&mut navigator)?;
    // Warm up: the first search builds an index, and the first list counts the lines.
    let first_search = bench.time("last main").0;
    let first_list = bench.time("list main").0;
    for command in AT_POSITION {
        bench.at_positions(command, command, positions)?;
    }
    let functions = bench.functions()?;
    for &(verb, calls) in TO_BREAKPOINTS {
        let nearest = functions
            .iter()
            .min_by_key(|(_, called)| called.abs_diff(calls))
            .ok_or("no function was called")?;
        bench.time("delete").1?;
        bench.time(&format!("break {}", nearest.0)).1?;
        bench.at_positions(&format!("{verb}, {} calls", nearest.1), verb, positions)?;
    }
    bench.time("delete").1?;
    let often = functions.first().ok_or("no function was called")?;
    for command in WHOLE_HISTORY {
        let name = format!("{}, {} calls", command.replace("FUNCTION", "F"), often.1);
        bench.at_positions(&name, &command.replace("FUNCTION", &often.0), RUNS)?;
    }
    Ok(json!({
        "instructions": bench.len,
        "open_ms": open,
        "first_search_ms": first_search,
        "first_list_ms": first_list,
        "verbs": bench.verbs,
        "values": match with_values {
            Some(bundle) => values::run(Path::new(bundle), positions)?,
            None => Value::Null,
        },
    }))
}

/// Opens a bundle.
fn opened(bundle: &Path) -> Result<Navigator, Failure> {
    let options = OpenOptions {
        main_calls: true,
        ..OpenOptions::default()
    };
    let session = Session::open(bundle, &options, &Watch::none()).map_err(|error| error.to_string())?;
    Navigator::new(session).map_err(|error| error.to_string())
}

struct Bench<'a> {
    navigator: &'a mut Navigator,
    len: u64,
    random: u64,
    verbs: Vec<Value>,
}

impl<'a> Bench<'a> {
    fn new(navigator: &'a mut Navigator) -> Result<Self, Failure> {
        let thread = navigator.thread().map_err(|error| error.to_string())?;
        Ok(Self {
            len: thread.history.len(),
            random: 0x9e37_79b9_7f4a_7c15,
            navigator,
            verbs: Vec::new(),
        })
    }

    /// Returns a pseudo-random position (xorshift64).
    fn somewhere(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % self.len.max(1)
    }

    /// Runs a command, and returns its milliseconds and its result.
    fn time(&mut self, command: &str) -> (f64, Result<Output, String>) {
        let begin = Instant::now();
        let answer = commands::execute(self.navigator, command, &Watch::none());
        if let Ok(output) = &answer {
            let mut text = Text::plain();
            output.render(&mut text);
            std::hint::black_box(text.into_string());
        }
        (milliseconds(begin), answer.map_err(|error| error.to_string()))
    }

    /// Runs a command at random positions, and records its times.
    fn at_positions(&mut self, name: &str, command: &str, positions: usize) -> Result<(), Failure> {
        self.at_positions_within(name, command, positions, TIME_LIMIT)
    }

    /// Does the same for another total time in milliseconds.
    fn at_positions_within(
        &mut self,
        name: &str,
        command: &str,
        positions: usize,
        limit: f64,
    ) -> Result<(), Failure> {
        let mut times = Vec::with_capacity(positions);
        let mut failed = 0;
        for _ in 0..positions {
            let to = self.somewhere();
            self.time(&format!("goto #{to}")).1?;
            let (took, answer) = self.time(command);
            failed += u64::from(answer.is_err());
            times.push(took);
            if times.iter().sum::<f64>() > limit {
                break;
            }
        }
        times.sort_by(f64::total_cmp);
        let rank = |hundredths: usize| {
            let rank = (times.len() * hundredths).div_ceil(100).max(1);
            times.get(rank - 1).copied()
        };
        self.verbs.push(json!({
            "command": name,
            "times": times.len(),
            "failed": failed,
            "p50_ms": rank(50),
            "p90_ms": rank(90),
            "p99_ms": rank(99),
            "max_ms": rank(100),
        }));
        Ok(())
    }

    /// Returns functions with plain names and their numbers of calls, the most often called first.
    /// Those with inlined copies are left out: their executions are no calls.
    fn functions(&self) -> Result<Vec<(String, u64)>, Failure> {
        let failed = |error: backtrail_debugger::Error| error.to_string();
        let (thread, process) = (
            self.navigator.thread().map_err(failed)?,
            self.navigator.process().map_err(failed)?,
        );
        let watch = Watch::none();
        let forest = self.navigator.session().forest(thread, &watch).map_err(failed)?;
        let by_function = forest.by_function(&watch).map_err(|error| error.to_string())?;
        let epoch = process.epochs().first().ok_or("the program has no modules")?;
        let is_plain = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let mut functions = Vec::new();
        for (at, calls) in by_function {
            let Some(function) = epoch.symbols.function_at(at) else {
                continue;
            };
            let name = function.name.to_string();
            let code = backtrail_debugger::functions::code(process, &name);
            if is_plain(&name) && code.is_ok_and(|code| code.copies.is_empty()) {
                functions.push((name, calls.len() as u64));
            }
        }
        functions.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        Ok(functions)
    }
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}
