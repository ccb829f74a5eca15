//! One measured program: a JSON object from which the tables are made.
//!
//! A failed measurement is `{"error": …}`, and one that would take too long `{"skipped": …}`.

use super::meter::{Engine, Meter, SLOW_RUNS};
use super::options::DecodeOptions;
use super::streams::{Purpose, Streams};
use crate::Failure;
use crate::bench::machine;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// The start of the part that is decoded under cachegrind …
const COUNT_FROM: u64 = 64 << 10;
/// … to here, so that the start of the process and the first reading of code do not count.
const COUNT_TO: u64 = 256 << 10;

/// Bytes of packets whose history is searched: at least 100 million instructions.
const SEARCHED: u64 = 20_000_000;

/// Everything that the options want, but for the threads, which are measured in rounds.
pub fn measure(streams: &Streams<'_>, meter: &Meter, options: &DecodeOptions) -> Result<Value, Failure> {
    let whole = streams.bundle(Purpose::Whole)?;
    let mut row = json!({
        "schema": "backtrail-bench-decode/1",
        "program": streams.program.name,
        "machine": machine::line(),
        "load": machine::load(),
    });
    if options.instructions {
        row["machine_instructions"] = machine_instructions(meter, &whole);
        return Ok(row);
    }
    if options.searches {
        let bytes = SEARCHED / if options.quick { 20 } else { 1 };
        let asked = [("--bytes", bytes.to_string())];
        row["searches"] = meter.ask("search", &whole, &asked).unwrap_or_else(failed);
        return Ok(row);
    }
    if options.threads {
        return Ok(row);
    }
    let prefix = prefix(meter, &whole, options.seconds())?;
    row["prefix"] = peers(meter, &whole, &prefix, options);
    row["plain_returns"] = plain_returns(streams, meter, options).unwrap_or_else(failed);
    if !options.no_whole {
        row["whole"] = by_engine(meter, |engine| {
            beyond(&row["prefix"], engine, prefix.of, options)
                .map_or_else(|| ours(meter, engine, &whole, prefix.of, 1), Ok)
        });
    }
    if !options.no_open {
        let ring = streams.bundle(Purpose::Ring)?;
        let bytes = prefix.of.min(64 << 20);
        row["open"] = by_engine(meter, |engine| {
            if let Some(skipped) = beyond(&row["prefix"], engine, bytes, options) {
                return Ok(skipped);
            }
            if engine.is_oracle() {
                return Ok(json!({ "skipped": "not in the product" }));
            }
            let open = |first| meter.open(engine, &ring, first, options.limit() * 2);
            Ok(json!({ "seconds": open("crash")?, "all_seconds": open("goto start")? }))
        });
    }
    Ok(row)
}

/// A part of a stream, and all of it, in bytes.
struct Prefix {
    bytes: u64,
    of: u64,
}

fn prefix(meter: &Meter, bundle: &Path, seconds: f64) -> Result<Prefix, Failure> {
    let told = meter.ask("prefix", bundle, &[("--seconds", seconds.to_string())])?;
    let number = |key: &str| told[key].as_u64().ok_or("the prefix is missing");
    Ok(Prefix {
        bytes: number("bytes")?,
        of: number("of")?,
    })
}

/// libipt's decoders and ours on a prefix.
fn peers(meter: &Meter, bundle: &Path, prefix: &Prefix, options: &DecodeOptions) -> Value {
    let peer = |kind: &str, runs: u32| {
        let asked = [
            ("--bytes", prefix.bytes.to_string()),
            ("--runs", runs.to_string()),
        ];
        meter.ask(kind, bundle, &asked).unwrap_or_else(failed)
    };
    json!({
        "bytes": prefix.bytes,
        "of": prefix.of,
        "insn": peer("insn", options.runs().min(SLOW_RUNS)),
        "blk": peer("blk", options.runs()),
        "ours": by_engine(meter, |engine| ours(meter, engine, bundle, prefix.bytes, options.runs())),
    })
}

/// Measures the edge analyzer and ours on a stream without compressed returns.
///
/// The whole stream is measured too, because the analyzer decodes a prefix in milliseconds.
fn plain_returns(streams: &Streams<'_>, meter: &Meter, options: &DecodeOptions) -> Result<Value, Failure> {
    let bundle = streams.bundle(Purpose::PlainReturns)?;
    let prefix = prefix(meter, &bundle, options.seconds() / 2.0)?;
    let edges = |bytes: u64| edges(meter, &bundle, bytes, options.runs());
    let mut part = json!({
        "bytes": prefix.bytes,
        "of": prefix.of,
        "edges": edges(prefix.bytes),
        "ours": by_engine(meter, |engine| ours(meter, engine, &bundle, prefix.bytes, options.runs())),
    });
    if !options.no_whole {
        let whole = by_engine(meter, |engine| {
            beyond(&part, engine, prefix.of, options)
                .map_or_else(|| ours(meter, engine, &bundle, prefix.of, options.runs()), Ok)
        });
        part["whole"] = json!({ "bytes": prefix.of, "edges": edges(prefix.of), "ours": whole });
    }
    Ok(part)
}

/// Measures the edge analyzer with its caches and its own handler.
fn edges(meter: &Meter, bundle: &Path, bytes: u64, runs: u32) -> Value {
    let asked = [("--bytes", bytes.to_string()), ("--runs", runs.to_string())];
    meter.ask("edges", bundle, &asked).unwrap_or_else(failed)
}

fn ours(meter: &Meter, engine: &Engine, bundle: &Path, bytes: u64, runs: u32) -> Result<Value, Failure> {
    let asked = [
        ("--bytes", bytes.to_string()),
        ("--runs", engine.runs(runs).to_string()),
        ("--engine", engine.name.clone()),
        ("--jobs", engine.jobs.to_string()),
    ];
    meter.ask("ours", bundle, &asked)
}

/// Returns why an engine does not decode this number of bytes, from its speed on the prefix.
fn beyond(prefix: &Value, engine: &Engine, bytes: u64, options: &DecodeOptions) -> Option<Value> {
    let list = prefix["ours"].as_array()?;
    let same = |entry: &&Value| entry["engine"] == *engine.name && entry["jobs"] == engine.jobs;
    let known = list.iter().find(same)?;
    let times = bytes as f64 / prefix["bytes"].as_f64()?;
    let seconds = known["both_seconds"]["warm"].as_f64()? * times;
    let memory = (known["history_bytes"].as_f64()? + known["forest_bytes"].as_f64()?) * times;
    if seconds > options.limit().as_secs_f64() {
        return Some(json!({ "skipped": format!("it would take about {seconds:.0} s") }));
    }
    let room = available();
    (memory > room * 0.6).then(
        || json!({ "skipped": format!("it would need about {:.0} of {:.0} GB", memory / 1e9, room / 1e9) }),
    )
}

/// Bytes of memory that are not in use.
fn available() -> f64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.unwrap_or(0.0) * 1024.0
}

/// Machine instructions for each decoded one: the difference of two prefixes.
fn machine_instructions(meter: &Meter, bundle: &Path) -> Value {
    by_engine(meter, |engine| {
        let count = |forest: bool, bytes: u64| -> Result<(u64, u64), Failure> {
            let mut asked = vec![
                ("--bytes", bytes.to_string()),
                ("--engine", engine.name.clone()),
                ("--jobs", engine.jobs.to_string()),
            ];
            if !forest {
                asked.push(("--no-forest", String::new()));
            }
            let (machine, told) = meter.machine_instructions("ours", bundle, &asked)?;
            let decoded = told["instructions"].as_u64().ok_or("no count of instructions")?;
            Ok((machine, decoded))
        };
        let each = |forest: bool| -> Result<(f64, u64), Failure> {
            let (short, long) = (count(forest, COUNT_FROM)?, count(forest, COUNT_TO)?);
            let decoded = long.1.saturating_sub(short.1).max(1);
            Ok((long.0.saturating_sub(short.0) as f64 / decoded as f64, decoded))
        };
        let (flow, decoded) = each(false)?;
        let (both, _) = each(true)?;
        Ok(json!({ "flow": flow, "both": both, "decoded": decoded, "from": COUNT_FROM, "to": COUNT_TO }))
    })
}

/// A list of what `measure` gives for each of our engines, with their names.
fn by_engine(meter: &Meter, measure: impl Fn(&Engine) -> Result<Value, Failure>) -> Value {
    let one = |engine: &Engine| {
        let mut object = Map::new();
        object.insert("engine".to_owned(), json!(engine.name));
        object.insert("jobs".to_owned(), json!(engine.jobs));
        if let Value::Object(measured) = measure(engine).unwrap_or_else(failed) {
            object.extend(measured);
        }
        Value::Object(object)
    };
    meter.engines.iter().map(one).collect()
}

/// Returns the text that replaces missing numbers.
pub fn failed(error: Failure) -> Value {
    json!({ "error": error })
}
