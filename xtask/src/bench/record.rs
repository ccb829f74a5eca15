//! `cargo xtask bench record`: slowdown of compute-bound programs, next to qemu's and valgrind's.

use super::costs::{Cost, Row};
use super::peers::{self, Peer};
use super::{Options, folder, machine, sentence, table, values};
use crate::{Failure, packages};
use backtrail_tests::real::{self, History, RealProgram, Recorded, Recorder, Run, Workspace};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The rows measured: what is promised of the recorder's speed is promised of these.
const NAMES: &[&str] = &["gzip", "xz", "sqlite3", "lua", "python", "compute"];

/// For each run of anything, decoding included.
const LIMIT: Duration = Duration::from_secs(900);

/// Builds, measures, prints.
pub fn run(options: &Options, binary: &Path) -> Result<(), Failure> {
    packages::ensure(&[&packages::of_programs(NAMES), packages::BENCH, packages::COUNT])?;
    let folder = folder("bench")?;
    let recorder = options.recorder(binary);
    let refusal = recorder
        .refusal(LIMIT)
        .map_err(|error| sentence("backtrail record", &error))?;
    if let Some(refusal) = refusal {
        return Err(format!("the recorder cannot record here: {refusal}"));
    }
    if options.values {
        return values::run(options, &recorder, &folder);
    }
    let peers = peers::installed(&folder)?;
    let mut rows = Vec::new();
    for name in NAMES {
        let Some(program) = real::find(name).filter(|program| options.wants(program)) else {
            continue;
        };
        if let Some(missing) = real::missing(program) {
            eprintln!("{name}: skipped, because {missing} is missing");
            continue;
        }
        eprintln!("{name}: load {}", machine::load());
        let row = measure(program, options, &recorder, &peers, &folder.join(name))
            .map_err(|error| format!("{name}: {error}"))?;
        if options.json {
            println!("{}", table::json(&row, &peers));
        }
        rows.push(row);
    }
    if !options.json {
        println!("{}", table::markdown(options, &recorder, &rows, &peers));
    }
    values::run(options, &recorder, &folder)
}

fn measure(
    program: &'static RealProgram,
    options: &Options,
    recorder: &Recorder,
    peers: &[Peer],
    folder: &Path,
) -> Result<Row, Failure> {
    let Run::Command(command) = program.run else {
        return Err("servers are not supported in this table".to_owned());
    };
    let error = |error: std::io::Error| error.to_string();
    let workspace = Workspace::make(program, folder, options.size(program), LIMIT).map_err(error)?;
    let words = workspace.words(command).map_err(error)?;
    let first = workspace
        .run(workspace.command_of(words.clone()), "native", LIMIT)
        .and_then(|ended| ended.succeeded("native"))
        .map_err(error)?;
    let expected = Some(&*first.stdout);
    let time =
        |words: Vec<_>, name: &str| peers::fastest(&workspace, &words, name, options.runs(), LIMIT, expected);
    let native = time(words.clone(), "native")?.min(first.seconds);
    let cost = |history: History| {
        let recorder = Recorder {
            history,
            ..recorder.clone()
        };
        cost(&recorder, &workspace, &words, options.runs(), &first.stdout)
    };
    let ring = cost(recorder.history);
    let full = cost(History::Full);
    let peers = peers
        .iter()
        .map(|peer| time(peer.words(words.clone()), peer.name))
        .collect();
    fs::remove_dir_all(folder).map_err(error)?;
    Ok(Row {
        program,
        native,
        ring,
        full,
        peers,
    })
}

/// The fastest of the recordings; the last one's bundle is decoded when a ring bounds it.
fn cost(
    recorder: &Recorder,
    workspace: &Workspace,
    words: &[std::ffi::OsString],
    runs: u32,
    expected: &[u8],
) -> Result<Cost, Failure> {
    let bundle = workspace.folder().join("bundle");
    let mut seconds = f64::INFINITY;
    let mut last: Option<Recorded> = None;
    for _ in 0..runs {
        let command = workspace.command_of(recorder.words(&bundle, words.to_vec()));
        let recorded = workspace
            .run(command, "record", LIMIT)
            .and_then(|ended| recorder.read(ended, &bundle))
            .map_err(|error| error.to_string())?;
        if recorded.ended.stdout != expected {
            return Err("the output differs under the recorder".to_owned());
        }
        seconds = seconds.min(recorded.ended.seconds);
        last = Some(recorded);
    }
    let recorded = last.ok_or("no run")?;
    let mut cost = Cost {
        seconds,
        bytes: recorded.report.made(),
        bits: None,
        gaps: recorded.report.gaps,
    };
    if recorder.history != History::Full {
        match recorder.decode(&bundle, LIMIT) {
            Ok(decoded) => {
                cost.bits = bits(recorded.report.kept, decoded.instructions);
                cost.gaps += decoded.gaps.len() as u64 + decoded.errors;
            }
            Err(error) => eprintln!("not decoded: {error}"),
        }
    }
    recorded.discard().map_err(|error| error.to_string())?;
    Ok(cost)
}

#[expect(clippy::cast_precision_loss, reason = "a figure of three digits")]
fn bits(bytes: u64, instructions: u64) -> Option<f64> {
    (instructions > 0).then(|| bytes as f64 * 8.0 / instructions as f64)
}
