//! `cargo xtask bench adapter`: times of the debug adapter, from a request to its answer or stop.

use super::machine;
use crate::Failure;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How often each request is made.
const TIMES: usize = 50;
/// How often the trace is opened.
const OPENED: usize = 5;
/// As many MiB of the trace are opened.
const LAST: u64 = 64;

/// Measures, and prints a table.
pub fn run(backtrail: &Path, bundle: &Path) -> Result<(), Failure> {
    let mut table = Table::default();
    for _ in 1..OPENED {
        let mut client = Client::start(backtrail)?;
        client.open(bundle, &mut table)?;
        client.end()?;
    }
    let mut client = Client::start(backtrail)?;
    client.open(bundle, &mut table)?;
    let thread = client.ask("threads", json!({}))?["threads"][0]["id"].clone();
    // The whole history is decoded first: what is measured is the answers.
    client.ask("backtrail/calls", json!({}))?;
    let first = client.ask("backtrail/timeline", json!({ "width": 1500 }))?;
    let (begin, end) = (number(&first["begin"]), number(&first["end"]));
    for round in 0..TIMES {
        let at = begin + (end - begin) * (round as f64 + 0.5) / TIMES as f64;
        for (name, command, arguments) in [
            ("timeline, all", "backtrail/timeline", json!({ "width": 1500 })),
            (
                "timeline, a thousandth",
                "backtrail/timeline",
                json!({ "width": 1500, "from": at, "to": at + (end - begin) / 1000.0 }),
            ),
            ("call path", "backtrail/callPath", json!({})),
        ] {
            table.time(name, || client.ask(command, arguments))?;
        }
        for (name, command) in [
            ("stepBack", "stepBack"),
            ("reverse step in", "backtrail/reverseStepIn"),
            ("next", "next"),
            ("stepIn", "stepIn"),
        ] {
            table.time(name, || {
                client.ask(command, json!({ "threadId": thread }))?;
                client.event("stopped")
            })?;
        }
        let stack = table.time("stackTrace", || {
            client.ask("stackTrace", json!({ "threadId": thread, "levels": 20 }))
        })?;
        let frame = stack["stackFrames"][0]["id"].clone();
        let scopes = client.ask("scopes", json!({ "frameId": frame }))?;
        let locals = scopes["scopes"][0]["variablesReference"].clone();
        table.time("variables, locals", || {
            client.ask("variables", json!({ "variablesReference": locals }))
        })?;
        table.time("disassemble 200", || {
            let arguments =
                json!({ "memoryReference": "", "instructionOffset": -100, "instructionCount": 200 });
            client.ask("disassemble", arguments)
        })?;
        client.ask("backtrail/goto", json!({ "to": position(&first, round) }))?;
        client.event("stopped")?;
    }
    client.end()?;
    println!(
        "`cargo xtask bench adapter` on {}; load at the end {}.\n\n{}",
        machine::line(),
        machine::load(),
        table.markdown()
    );
    Ok(())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Calls here and there in the trace, to stand in.
fn position(timeline: &Value, round: usize) -> String {
    let calls = timeline["threads"][0]["calls"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let at = calls.len() * round / TIMES;
    let position = calls.get(at).and_then(|call| call["position"].as_str());
    position.unwrap_or("end").to_owned()
}

/// Measured times, by name.
#[derive(Default)]
struct Table {
    rows: BTreeMap<&'static str, Vec<Duration>>,
}

impl Table {
    fn time<T>(
        &mut self,
        name: &'static str,
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        let done = act()?;
        self.add(name, begun);
        Ok(done)
    }

    fn add(&mut self, name: &'static str, begun: Instant) {
        self.rows.entry(name).or_default().push(begun.elapsed());
    }

    fn markdown(&self) -> String {
        let mut text =
            "| request | times | p50 ms | p99 ms | max ms |\n|---|---:|---:|---:|---:|\n".to_owned();
        for (name, times) in &self.rows {
            let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
            times.sort_by(f64::total_cmp);
            let rank = |percent: usize| {
                let at = (times.len() * percent).div_ceil(100).max(1) - 1;
                times.get(at).copied().unwrap_or(f64::NAN)
            };
            text.push_str(&format!(
                "| {name} | {} | {:.2} | {:.2} | {:.2} |\n",
                times.len(),
                rank(50),
                rank(99),
                rank(100)
            ));
        }
        text
    }
}

/// A client of a running adapter.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    events: Vec<Value>,
    seq: u64,
}

impl Client {
    fn start(backtrail: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(backtrail);
        command.arg("dap").stdin(Stdio::piped()).stdout(Stdio::piped());
        let lost = || "the adapter has no streams".to_owned();
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot run the adapter: {error}"))?;
        let input = child.stdin.take().ok_or_else(lost)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(lost)?);
        Ok(Self {
            child,
            input,
            output,
            events: Vec::new(),
            seq: 0,
        })
    }

    /// Opens a trace and waits for the first stop.
    fn open(&mut self, bundle: &Path, table: &mut Table) -> Result<(), Failure> {
        let begun = Instant::now();
        self.ask("initialize", json!({ "adapterID": "backtrail" }))?;
        table.add("(1) process begun to `initialize` answered", begun);
        self.ask(
            "launch",
            json!({ "bundle": bundle.to_string_lossy(), "last": LAST }),
        )?;
        self.event("initialized")?;
        self.ask("configurationDone", json!({}))?;
        self.event("stopped")?;
        table.add("(2) process begun to stopped", begun);
        Ok(())
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, Failure> {
        self.seq += 1;
        let request =
            json!({ "seq": self.seq, "type": "request", "command": command, "arguments": arguments });
        let body = request.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{body}", body.len())
            .and_then(|()| self.input.flush())
            .map_err(|error| format!("the adapter has ended: {error}"))?;
        loop {
            let mut message = self.read()?;
            if message["type"] == "event" {
                self.events.push(message);
            } else if message["request_seq"] == self.seq {
                return match message["success"] == true {
                    true => Ok(message["body"].take()),
                    false => Err(format!("{command}: {}", message["message"])),
                };
            }
        }
    }

    /// The next event of a name; those before it are forgotten.
    fn event(&mut self, name: &str) -> Result<Value, Failure> {
        loop {
            if let Some(at) = self.events.iter().position(|event| event["event"] == name) {
                return self.events.drain(..=at).next_back().ok_or_else(String::new);
            }
            let message = self.read()?;
            self.events.push(message);
        }
    }

    fn read(&mut self) -> Result<Value, Failure> {
        let gone = |error: std::io::Error| format!("the adapter has ended: {error}");
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(gone)? == 0 {
                return Err("the adapter has ended".to_owned());
            }
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap_or(0),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).map_err(gone)?;
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    }

    fn end(mut self) -> Result<(), Failure> {
        self.ask("disconnect", json!({}))?;
        self.child.wait().map(|_| ()).map_err(|error| error.to_string())
    }
}
