//! Markdown tables of `bench decode`, from the rows' JSON.

use super::options::DecodeOptions;
use super::threads::Figures;
use crate::bench::machine;
use serde_json::Value;
use std::fmt::Write;

/// The tables that the rows have figures for, with the command and the machine.
pub fn markdown(options: &DecodeOptions, rows: &[Value]) -> String {
    let clock = if options.cpu {
        "processor time"
    } else {
        "wall clock"
    };
    let mut text = format!(
        "`cargo xtask bench decode {}` on {}; load at the end {}.\n",
        options.shown(),
        machine::line(),
        machine::load()
    );
    let page = Page {
        clock: if options.cpu { "_cpu" } else { "" },
        rows,
    };
    if options.instructions {
        text.push_str(&page.machine_instructions());
    } else if options.searches {
        text.push_str(&page.searches());
    } else if options.threads {
        text.push_str(&page.threads(options));
    } else {
        let _ = writeln!(
            text,
            "Times are {clock}; the best of {} warm runs where not called cold. Prefixes begin at the stream's \
             start and end at a PSB.",
            options.runs() - 1
        );
        text.push_str(&page.prefix());
        text.push_str(&page.plain_returns());
        text.push_str(&page.ours());
        if rows.iter().any(|row| row["threads"].is_object()) {
            text.push_str(&page.threads(options));
        }
        if rows.iter().any(|row| row["open"].is_array()) {
            text.push_str(&page.open());
        }
    }
    text.push_str(&page.problems());
    text
}

/// The contents of the tables.
struct Page<'a> {
    /// The suffix of the names of times.
    clock: &'static str,
    rows: &'a [Value],
}

impl Page<'_> {
    /// Ours beside libipt's decoders.
    fn prefix(&self) -> String {
        let mut text = String::from(
            "\nPrefix, beside libipt with an image section cache. M/s are millions of instructions a second: for \
             ours of flow, history and time, in parentheses with the call forest too; × is ours by the peer's.\n\n\
             | program | prefix MB | of MB | M instructions | bits each | pt_insn M/s | pt_blk M/s | engine | ours M/s | × pt_insn | × pt_blk |\n\
             |---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|\n",
        );
        for row in self.rows {
            let prefix = &row["prefix"];
            let bytes = prefix["bytes"].as_f64();
            let instructions = prefix["insn"]["instructions"].as_f64();
            let insn = self.rate(&prefix["insn"], "instructions", "seconds", "warm");
            let blk = self.rate(&prefix["blk"], "instructions", "seconds", "warm");
            for ours in list(&prefix["ours"]) {
                let flow = self.rate(ours, "instructions", "seconds", "warm");
                let both = self.rate(ours, "instructions", "both_seconds", "warm");
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                    name(row),
                    figure(bytes.map(mega), 1),
                    figure(prefix["of"].as_f64().map(mega), 0),
                    figure(instructions.map(mega), 0),
                    figure(ratio(bytes.map(|bytes| bytes * 8.0), instructions), 2),
                    figure(insn.map(mega), 1),
                    figure(blk.map(mega), 1),
                    engine(ours),
                    two(flow.map(mega), both.map(mega), 1),
                    two(ratio(flow, insn), ratio(both, insn), 2),
                    two(ratio(flow, blk), ratio(both, blk), 2),
                );
            }
        }
        text
    }

    /// Ours beside the edge analyzer.
    fn plain_returns(&self) -> String {
        let mut text = String::from(
            "\nStreams recorded with `--no-compress-returns`, a prefix and all, beside `iptr-edge-analyzer` \
             with its caches and its own handler, which fills AFL++'s bitmap. Warm, and in parentheses the \
             first run. All of ours is flow, history, time and forest; × is all of ours by the peer.\n\n\
             | program | PT MB | M branches | analyzer MB/s | engine | flow MB/s | all MB/s | × |\n\
             |---|---:|---:|---:|---|---:|---:|---:|\n",
        );
        for (name, part) in self.beside_edges() {
            let rates =
                |of: &Value, times: &str| ["warm", "cold"].map(|run| self.rate(of, "bytes", times, run));
            let peer = rates(&part["edges"], "seconds");
            for ours in list(&part["ours"]) {
                let (flow, all) = (rates(ours, "seconds"), rates(ours, "both_seconds"));
                let megabytes = |[warm, cold]: [Option<f64>; 2]| two(warm.map(mega), cold.map(mega), 0);
                let flow = ours["skipped"]
                    .as_str()
                    .map_or_else(|| megabytes(flow), str::to_owned);
                let _ = writeln!(
                    text,
                    "| {name} | {} | {} | {} | {} | {flow} | {} | {} |",
                    figure(part["bytes"].as_f64().map(mega), 1),
                    figure(ours["branches"].as_f64().map(mega), 2),
                    megabytes(peer),
                    engine(ours),
                    megabytes(all),
                    two(ratio(all[0], peer[0]), ratio(all[1], peer[1]), 2),
                );
            }
        }
        text
    }

    /// Returns the analyzer's measurements with their programs: a prefix and the whole stream of
    /// each.
    fn beside_edges(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.rows.iter().flat_map(|row| {
            let prefix = &row["plain_returns"];
            let parts = [prefix, &prefix["whole"]].into_iter();
            parts.filter(|part| !part.is_null()).map(|part| (name(row), part))
        })
    }

    /// Ours in seconds and bytes.
    fn ours(&self) -> String {
        let mut text = String::from(
            "\nOurs. Flow is with history and time. A whole stream is decoded once, cold. The peak of memory is of the first run; mapped \
             packets and code are in it.\n\n\
             | program | engine | stream | PT MB | M instructions | cold flow s | flow s | forest s | M/s, all | history B each | forest B each | peak RSS MB |\n\
             |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for row in self.rows {
            let prefix = list(&row["prefix"]["ours"]).map(|ours| ("prefix", ours));
            let whole = list(&row["whole"]).map(|ours| ("whole", ours));
            for (stream, ours) in prefix.chain(whole) {
                if let Some(why) = ours["skipped"].as_str() {
                    let _ = writeln!(
                        text,
                        "| {} | {} | {stream} | {why} ||||||||",
                        name(row),
                        engine(ours)
                    );
                    continue;
                }
                let run = if stream == "whole" { "cold" } else { "warm" };
                let count = ours["instructions"].as_f64();
                let _ = writeln!(
                    text,
                    "| {} | {} | {stream} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                    name(row),
                    engine(ours),
                    figure(ours["bytes"].as_f64().map(mega), 1),
                    figure(count.map(mega), 0),
                    figure(self.time(ours, "seconds", "cold"), 2),
                    figure(self.time(ours, "seconds", "warm"), 2),
                    figure(self.time(ours, "forest_seconds", run), 2),
                    figure(self.rate(ours, "instructions", "both_seconds", run).map(mega), 1),
                    figure(ratio(ours["history_bytes"].as_f64(), count), 3),
                    figure(ratio(ours["forest_bytes"].as_f64(), count), 3),
                    figure(ours["peak_rss"].as_f64().map(mega), 0),
                );
            }
        }
        text
    }

    /// One thread and two.
    fn threads(&self, options: &DecodeOptions) -> String {
        let mut text = format!(
            "\nOne thread and two, all of ours, whole streams. Warm: in turn in one process, medians of the turns in {} rounds of {} s for each stream, wall \
             clock; × is how many times as fast two are, in parentheses by the best of each. Cold: the first decode of a process, medians of processes in turn.\n\n\
             | program | PT MB | turns | one s | two s | × | cold one s | cold two s | cold × |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            options.rounds(),
            options.round_seconds(),
        );
        for row in self.rows {
            let measured = &row["threads"];
            let figures = Figures::of(measured);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                name(row),
                figure(measured["bytes"].as_f64().map(mega), 1),
                figures.turns,
                figure(figures.one, 3),
                figure(figures.together, 3),
                two(figures.times, figures.best, 2),
                figure(figures.cold_one, 2),
                figure(figures.cold_together, 2),
                figure(ratio(figures.cold_one, figures.cold_together), 2),
            );
        }
        text
    }

    /// To the first answer.
    fn open(&self) -> String {
        let mut text = String::from(
            "\nOpening the last 64 MiB of packets, not in memory: from the start of `backtrail debug --batch -e crash` to its end, and of \
             `-e 'goto start'`, which wants all of them decoded.\n\n\
             | program | engine | seconds | all, seconds |\n|---|---|---:|---:|\n",
        );
        for row in self.rows {
            for ours in list(&row["open"]) {
                let seconds = ours["skipped"]
                    .as_str()
                    .map_or_else(|| figure(ours["seconds"].as_f64(), 2), str::to_owned);
                let all = figure(ours["all_seconds"].as_f64(), 2);
                let _ = writeln!(text, "| {} | {} | {seconds} | {all} |", name(row), engine(ours));
            }
        }
        text
    }

    /// By cachegrind.
    fn machine_instructions(&self) -> String {
        let mut text = String::from(
            "Machine instructions for each decoded one, by cachegrind.\n\n\
             | program | engine | packets | decoded | flow, history, time | with forest |\n|---|---|---|---:|---:|---:|\n",
        );
        for row in self.rows {
            for ours in list(&row["machine_instructions"]) {
                let _ = writeln!(
                    text,
                    "| {} | {} | {} to {} KiB | {} | {} | {} |",
                    name(row),
                    engine(ours),
                    ours["from"].as_u64().unwrap_or(0) >> 10,
                    ours["to"].as_u64().unwrap_or(0) >> 10,
                    ours["decoded"].as_u64().unwrap_or(0),
                    figure(ours["flow"].as_f64(), 1),
                    figure(ours["both"].as_f64(), 1),
                );
            }
        }
        text
    }

    /// Through the index of the history.
    fn searches(&self) -> String {
        let mut text = String::from(
            "Searches for the entry of a function. The first one makes the index. The next entry from the start, the \
             last before the end, and the number of all, in microseconds; then the last entry of each function in \
             turn, before places all over.\n\n\
             | program | M instructions | index B each | first ms | never: next, last, number | once | often, hits | often | p50 | p99 |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for row in self.rows {
            let searches = &row["searches"];
            let count = searches["instructions"].as_f64();
            let three = |kind: &str| {
                let times = ["next", "prev", "count"].map(|key| figure(searches[kind][key].as_f64(), 0));
                times.join(", ")
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                name(row),
                figure(count.map(mega), 0),
                figure(ratio(searches["index_bytes"].as_f64(), count), 4),
                figure(searches["first_seconds"].as_f64().map(|seconds| seconds * 1e3), 0),
                three("never"),
                three("once"),
                searches["often"]["hits"],
                three("often"),
                figure(searches["anywhere"]["p50"].as_f64(), 0),
                figure(searches["anywhere"]["p99"].as_f64(), 0),
            );
        }
        text
    }

    /// Returns failures, and decoders that do not agree.
    fn problems(&self) -> String {
        let mut text = String::new();
        for row in self.rows {
            let mut found = Vec::new();
            errors(row, &mut String::new(), &mut found);
            let prefix = &row["prefix"];
            let expected = &prefix["insn"]["instructions"];
            for ours in list(&prefix["ours"]) {
                if expected.is_u64() && ours["instructions"].is_u64() && ours["instructions"] != *expected {
                    found.push(format!(
                        "{} decodes {} instructions, pt_insn {expected}",
                        engine(ours),
                        ours["instructions"]
                    ));
                }
            }
            for problem in found {
                let _ = writeln!(text, "\n{}: {problem}", name(row));
            }
        }
        text
    }

    fn time(&self, measured: &Value, times: &str, run: &str) -> Option<f64> {
        measured[times][format!("{run}{}", self.clock)].as_f64()
    }

    fn rate(&self, measured: &Value, what: &str, times: &str, run: &str) -> Option<f64> {
        ratio(measured[what].as_f64(), self.time(measured, times, run))
    }
}

/// Every `"error"` beneath a value that is a sentence or a count above 0, with the way to it.
fn errors(value: &Value, way: &mut String, found: &mut Vec<String>) {
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => list.iter().map(|value| (engine(value), value)).collect(),
        _ => return,
    };
    for (key, value) in entries {
        match (&*key, value) {
            ("error", Value::String(error)) => found.push(format!("{}: {error}", way.trim())),
            ("errors", count) if count.as_u64() > Some(0) => {
                found.push(format!("{}: {count} decode errors", way.trim()));
            }
            _ => {
                let length = way.len();
                way.push(' ');
                way.push_str(&key);
                errors(value, way, found);
                way.truncate(length);
            }
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn name(row: &Value) -> &str {
    row["program"].as_str().unwrap_or("?")
}

/// `native`, or with several threads `native, 2 threads`.
fn engine(ours: &Value) -> String {
    let name = ours["engine"].as_str().unwrap_or("?");
    match ours["jobs"].as_u64() {
        None | Some(1) => name.to_owned(),
        Some(jobs) => format!("{name}, {jobs} threads"),
    }
}

fn ratio(figure: Option<f64>, by: Option<f64>) -> Option<f64> {
    figure
        .zip(by)
        .map(|(figure, by)| figure / by)
        .filter(|ratio| ratio.is_finite())
}

fn mega(figure: f64) -> f64 {
    figure / 1e6
}

fn figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
}

fn two(first: Option<f64>, second: Option<f64>, digits: usize) -> String {
    format!("{} ({})", figure(first, digits), figure(second, digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_ratios_and_problems_are_shown() {
        let seconds = |warm: f64| json!({ "cold": 9.0, "warm": warm });
        let ours = json!({
            "engine": "libipt", "jobs": 2, "bytes": 1_000_000, "instructions": 10_000_000, "errors": 0,
            "seconds": seconds(1.0), "forest_seconds": seconds(1.0), "both_seconds": seconds(2.0),
            "history_bytes": 20_000_000, "forest_bytes": 5_000_000, "peak_rss": 3_000_000,
        });
        let row = json!({
            "program": "lua",
            "prefix": {
                "bytes": 1_000_000, "of": 9_000_000,
                "insn": { "instructions": 10_000_001, "errors": 1, "seconds": seconds(0.5) },
                "blk": { "error": "killed" },
                "ours": [ours],
            },
            "plain_returns": {
                "bytes": 1_000_000,
                "edges": { "bytes": 1_000_000, "set": 7, "seconds": seconds(3.0) },
                "ours": [ours],
            },
            "open": [{ "engine": "libipt", "jobs": 1, "skipped": "too long" }],
            "threads": {
                "bytes": 3_000_000, "jobs": 2,
                "turns": [{ "one": 1.5, "together": 1.0 }],
                "cold": { "one": [3.0], "together": [2.0] },
            },
        });
        let text = markdown(&DecodeOptions::parse(&[]).unwrap(), &[row]);
        for expected in [
            "| lua | 1.0 | 9 | 10 | 0.80 | 20.0 | – | libipt, 2 threads | 10.0 (5.0) | 0.50 (0.25) | – (–) |",
            "| lua | libipt, 2 threads | prefix | 1.0 | 10 | 9.00 | 1.00 | 1.00 | 5.0 | 2.000 | 0.500 | 3 |",
            "| lua | libipt | too long | – |",
            "| lua | 1.0 | – | 0 (0) | libipt, 2 threads | 1 (0) | 0 (0) | 1.50 (1.00) |",
            "| lua | 3.0 | 1 | 1.500 | 1.000 | 1.50 (1.50) | 3.00 | 2.00 | 1.50 |",
            "lua: prefix blk: killed",
            "lua: prefix insn: 1 decode errors",
            "lua: libipt, 2 threads decodes 10000000 instructions, pt_insn 10000001",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
