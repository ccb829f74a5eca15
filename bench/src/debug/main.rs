//! What `cargo xtask bench debug` measures: how long the debugger's commands take, from positions all over a history.
//!
//! `backtrail-bench-debug BUNDLE PLACES` prints one JSON object. The time of a command is that of finding and making its answer,
//! and of rendering it as text; the moves between positions are not counted.

use backtrail_console::output::Text;
use backtrail_console::{Output, commands};
use backtrail_debugger::{Navigator, OpenOptions, Session};
use backtrail_decoder::Watch;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// What went wrong, a sentence.
type Failure = String;

/// Verbs, and those that look at a position.
const AT_A_PLACE: &[&str] = &[
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

/// Verbs that go to breakpoints, of which there is one at a function that was called so often: about.
const TO_BREAKPOINTS: &[(&str, u64)] = &[
    ("continue", 1000),
    ("reverse-continue", 1000),
    ("reverse-continue", 10),
];

/// Commands over the whole history, of a function that was called often.
const OF_ALL: &[&str] = &[
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

/// How often each of these is asked.
const TIMES: usize = 5;

/// A command is asked no more when all of its answers together took as long, in milliseconds: what is slow, is so at fewer
/// positions.
const ENOUGH: f64 = 4000.0;

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
    let [bundle, places] = arguments else {
        return Err("it takes a bundle and a number of positions; see `cargo xtask bench debug`".to_owned());
    };
    let places: usize = places.parse().map_err(|_| format!("'{places}' is no number"))?;
    let watch = Watch::none();
    let begin = Instant::now();
    let options = OpenOptions {
        main_calls: true,
        ..OpenOptions::default()
    };
    let session = Session::open(Path::new(bundle), &options, &watch).map_err(|error| error.to_string())?;
    let mut navigator = Navigator::new(session).map_err(|error| error.to_string())?;
    let opened = milliseconds(begin);
    let mut bench = Bench {
        len: navigator
            .thread()
            .map_err(|error| error.to_string())?
            .history
            .len(),
        random: 0x9e37_79b9_7f4a_7c15,
        navigator: &mut navigator,
        verbs: Vec::new(),
    };
    // The first search makes an index, and the first list counts the lines: that is told by itself.
    let first_search = bench.time("last main").0;
    let first_list = bench.time("list main").0;
    for command in AT_A_PLACE {
        bench.at_places(command, command, places)?;
    }
    let functions = bench.functions()?;
    for &(verb, calls) in TO_BREAKPOINTS {
        let nearest = functions
            .iter()
            .min_by_key(|(_, called)| called.abs_diff(calls))
            .ok_or("no function was called")?;
        bench.time("delete").1?;
        bench.time(&format!("break {}", nearest.0)).1?;
        bench.at_places(&format!("{verb}, {} calls", nearest.1), verb, places)?;
    }
    bench.time("delete").1?;
    let often = functions.first().ok_or("no function was called")?;
    for command in OF_ALL {
        let name = format!("{}, {} calls", command.replace("FUNCTION", "F"), often.1);
        bench.at_places(&name, &command.replace("FUNCTION", &often.0), TIMES)?;
    }
    Ok(json!({
        "instructions": bench.len,
        "open_ms": opened,
        "first_search_ms": first_search,
        "first_list_ms": first_list,
        "verbs": bench.verbs,
    }))
}

struct Bench<'a> {
    navigator: &'a mut Navigator,
    len: u64,
    random: u64,
    verbs: Vec<Value>,
}

impl Bench<'_> {
    /// A position like any other: xorshift64.
    fn somewhere(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % self.len.max(1)
    }

    /// Runs a command; gives its milliseconds, and what it answers.
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

    /// Runs a command at random positions, and takes down what it took.
    fn at_places(&mut self, name: &str, command: &str, places: usize) -> Result<(), Failure> {
        let mut times = Vec::with_capacity(places);
        let mut failed = 0;
        for _ in 0..places {
            let to = self.somewhere();
            self.time(&format!("goto #{to}")).1?;
            let (took, answer) = self.time(command);
            failed += u64::from(answer.is_err());
            times.push(took);
            if times.iter().sum::<f64>() > ENOUGH {
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
            "p99_ms": rank(99),
            "max_ms": rank(100),
        }));
        Ok(())
    }

    /// Functions that have a plain name, with how often they were called, the most often called first.
    fn functions(&mut self) -> Result<Vec<(String, u64)>, Failure> {
        let Output::Search(found) = self.time("search ^[a-z_A-Z0-9]+$").1? else {
            return Err("search answers otherwise".to_owned());
        };
        let functions = found.functions.into_iter();
        let mut functions: Vec<(String, u64)> = functions.map(|(name, calls, ..)| (name, calls)).collect();
        functions.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        Ok(functions)
    }
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}
