//! The cost of recorded values: each program recorded plainly and with `--values`.

use super::{Options, machine};
use crate::Failure;
use backtrail_tests::real::{self, History, RealProgram, Recorder, Run, Workspace};
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The programs with promised costs of values.
const NAMES: &[&str] = &["gzip", "sqlite3", "lua", "python", "compute"];

/// The work is this part of that of the other tables. The log of a longer run takes gigabytes.
const PART: u32 = 4;

/// The maximum time of a run, with decoding.
const LIMIT: Duration = Duration::from_secs(900);

/// A GiB.
const GIB: f64 = (1_u64 << 30) as f64;

/// The costs of one program.
struct Row {
    program: &'static RealProgram,
    ring: Result<Ratios, Failure>,
    full: Result<(Ratios, Log), Failure>,
}

/// Processor times with values, as multiples of those without.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratios {
    program: f64,
    /// Of the program and the recorder together.
    total: f64,
}

/// The processor times of a recording in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTime {
    program: u64,
    recorder: u64,
}

impl CpuTime {
    const fn total(self) -> u64 {
        self.program + self.recorder
    }
}

/// The value logs of a full recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Log {
    instructions: u64,
    /// The bytes in the bundle.
    compressed: u64,
    /// The bytes that the program wrote.
    raw: u64,
    segments: u64,
    /// Missing segments, by their numbers.
    lost: u64,
}

/// Measures the programs, and prints the table.
pub fn run(options: &Options, recorder: &Recorder, folder: &Path) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for name in NAMES {
        let Some(program) = real::find(name).filter(|program| options.wants(program)) else {
            continue;
        };
        if let Some(missing) = real::missing(program) {
            eprintln!("{name}: skipped, because {missing} is missing");
            continue;
        }
        eprintln!("{name} with values: load {}", machine::load());
        let row = measure(program, options, recorder, &folder.join(name))
            .map_err(|error| format!("{name}: {error}"))?;
        if options.json {
            println!("{}", json(&row));
        }
        eprint!("{}", cells(&row));
        rows.push(row);
    }
    if !options.json && !rows.is_empty() {
        println!("{}", markdown(options, &rows));
    }
    Ok(())
}

fn measure(
    program: &'static RealProgram,
    options: &Options,
    recorder: &Recorder,
    folder: &Path,
) -> Result<Row, Failure> {
    let Run::Command(command) = program.run else {
        return Err("servers are not supported in this table".to_owned());
    };
    let error = |error: std::io::Error| error.to_string();
    let size = options.size(program).div_ceil(PART);
    let workspace = Workspace::make(program, folder, size, LIMIT).map_err(error)?;
    let words = workspace.words(command).map_err(error)?;
    let native = workspace
        .run(workspace.command_of(words.clone()), "native", LIMIT)
        .and_then(|ended| ended.succeeded("native"))
        .map_err(error)?;
    let compare = |history: History| {
        let recorder = Recorder {
            history,
            ..recorder.clone()
        };
        compare(&recorder, &workspace, &words, options.runs(), &native.stdout)
    };
    let ring = compare(recorder.history).map(|(ratios, _)| ratios);
    let full = compare(History::Full);
    fs::remove_dir_all(folder).map_err(error)?;
    Ok(Row { program, ring, full })
}

/// Records without and with values in turn. The times are the best ones of each kind.
fn compare(
    recorder: &Recorder,
    workspace: &Workspace,
    words: &[OsString],
    runs: u32,
    expected: &[u8],
) -> Result<(Ratios, Log), Failure> {
    let bundle = workspace.folder().join("bundle");
    let mut best: [Option<CpuTime>; 2] = [None, None];
    let mut log = Log::default();
    for run in 0..runs {
        for (has_values, best) in [false, true].into_iter().zip(&mut best) {
            let mut command = recorder.words(&bundle, words.to_vec());
            if has_values {
                command.insert(2, "--values".into());
            }
            let recorded = workspace
                .run(workspace.command_of(command), "record", LIMIT)
                .and_then(|ended| recorder.read(ended, &bundle))
                .map_err(|error| error.to_string())?;
            if recorded.ended.stdout != expected {
                return Err("the output differs under the recorder".to_owned());
            }
            let time = cpu_time(&bundle)?;
            if best.is_none_or(|best| time.total() < best.total()) {
                *best = Some(time);
            }
            if has_values && run + 1 == runs && recorder.history == History::Full {
                log = log_of(&bundle)?;
                let decoded = recorder.decode(&bundle, LIMIT);
                log.instructions = decoded.map_err(|error| error.to_string())?.instructions;
            }
            recorded.discard().map_err(|error| error.to_string())?;
        }
    }
    match best {
        [Some(plain), Some(values)] => Ok((ratios(plain, values), log)),
        _ => Err("no run".to_owned()),
    }
}

fn ratios(plain: CpuTime, values: CpuTime) -> Ratios {
    Ratios {
        program: quotient(values.program, plain.program),
        total: quotient(values.total(), plain.total()),
    }
}

/// Reads the processor times that the recorder has stored in a bundle.
fn cpu_time(bundle: &Path) -> Result<CpuTime, Failure> {
    let text = fs::read(bundle.join("meta.json")).map_err(|error| error.to_string())?;
    let meta: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let time = |key: &str| {
        let time = meta["overhead"][key].as_u64();
        time.ok_or_else(|| format!("the bundle does not have the time `{key}`"))
    };
    Ok(CpuTime {
        program: time("programCpu")?,
        recorder: time("recorderCpu")?,
    })
}

/// Adds up the value logs of a bundle.
fn log_of(bundle: &Path) -> Result<Log, Failure> {
    let mut log = Log::default();
    let files = fs::read_dir(bundle.join("values")).map_err(|error| format!("no values: {error}"))?;
    for file in files {
        let path = file.map_err(|error| error.to_string())?.path();
        let bytes = fs::read(&path).map_err(|error| error.to_string())?;
        add_log(&mut log, &bytes).ok_or_else(|| format!("{} is malformed", path.display()))?;
    }
    Ok(log)
}

/// Adds the value log of a thread (`bundle/src/value_log.rs`).
fn add_log(log: &mut Log, bytes: &[u8]) -> Option<()> {
    log.compressed += bytes.len() as u64;
    let mut rest = bytes.strip_prefix(b"BTVALS\0\x03")?;
    let mut next = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_first_chunk()?;
        let (raw, after) = after.split_first_chunk()?;
        let (compressed, after) = after.split_first_chunk()?;
        let number = u64::from_le_bytes(*number);
        log.lost += number.checked_sub(next)?;
        next = number.checked_add(1)?;
        log.segments += 1;
        log.raw += u64::from(u32::from_le_bytes(*raw));
        rest = after.get(u32::from_le_bytes(*compressed) as usize..)?;
    }
    Some(())
}

fn markdown(options: &Options, rows: &[Row]) -> String {
    let mut text = format!(
        "Values: processor time with `--values`, as a multiple of that without; in parentheses the program \
         alone. The best of {} runs, with a quarter of the work, on {}; load at the end {}. Bytes are of `--full`. \
         Millions of instructions in 1 GiB are computed from the raw bytes.\n\n\
         | program | ring | full | instructions, M | bytes/instruction | raw bytes/instruction | M in 1 GiB, raw \
         | segments | lost |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        options.runs(),
        machine::line(),
        machine::load(),
    );
    for row in rows {
        text.push_str(&cells(row));
    }
    for row in rows {
        let errors = [row.ring.as_ref().err(), row.full.as_ref().err()];
        for error in errors.into_iter().flatten() {
            let _ = writeln!(text, "\n{}: {error}", row.program.name);
        }
    }
    text
}

/// Returns the line of a program.
fn cells(row: &Row) -> String {
    let shown = |ratios: &Ratios| format!("{:.2}× ({:.2}×)", ratios.total, ratios.program);
    let ring = row.ring.as_ref().map_or_else(|_| "fails".to_owned(), shown);
    let about = row.program.about;
    match &row.full {
        Ok((ratios, log)) => {
            let raw = quotient(log.raw, log.instructions);
            format!(
                "| {about} | {ring} | {} | {:.0} | {:.3} | {raw:.2} | {:.0} | {} | {} |\n",
                shown(ratios),
                quotient(log.instructions, 1_000_000),
                quotient(log.compressed, log.instructions),
                GIB / raw / 1e6,
                log.segments,
                log.lost,
            )
        }
        Err(_) => format!("| {about} | {ring} | fails | – | – | – | – | – | – |\n"),
    }
}

fn json(row: &Row) -> String {
    let ratios = |ratios: &Ratios| serde_json::json!({ "program": ratios.program, "total": ratios.total });
    let ring = match &row.ring {
        Ok(ring) => ratios(ring),
        Err(error) => serde_json::json!({ "error": error }),
    };
    let full = match &row.full {
        Ok((full, log)) => serde_json::json!({
            "cpu": ratios(full),
            "instructions": log.instructions,
            "bytes": log.compressed,
            "raw_bytes": log.raw,
            "segments": log.segments,
            "lost": log.lost,
        }),
        Err(error) => serde_json::json!({ "error": error }),
    };
    serde_json::json!({
        "schema": "backtrail-bench-values/1",
        "program": row.program.name,
        "machine": machine::line(),
        "ring": ring,
        "full": full,
    })
    .to_string()
}

#[expect(clippy::cast_precision_loss, reason = "a figure of three digits")]
fn quotient(one: u64, other: u64) -> f64 {
    one as f64 / other as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u64, raw: u32, compressed: &[u8]) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend(raw.to_le_bytes());
        bytes.extend((compressed.len() as u32).to_le_bytes());
        bytes.extend(compressed);
        bytes
    }

    #[test]
    fn lost_segments_are_counted_by_their_numbers() {
        let magic = b"BTVALS\0\x03".to_vec();
        let mut log = Log::default();
        let bytes = [magic.clone(), segment(1, 100, b"abc"), segment(4, 50, b"")].concat();
        add_log(&mut log, &bytes).unwrap();
        let expected = Log {
            instructions: 0,
            compressed: bytes.len() as u64,
            raw: 150,
            segments: 2,
            lost: 3,
        };
        assert_eq!(log, expected);
        for cut in [bytes.len() - 1, 12, 3] {
            assert_eq!(add_log(&mut Log::default(), &bytes[..cut]), None);
        }
        let repeated = [magic, segment(4, 1, b""), segment(4, 1, b"")].concat();
        assert_eq!(add_log(&mut Log::default(), &repeated), None);
    }

    #[test]
    fn rows_show_ratios_and_instructions_in_a_gibibyte() {
        let time = |program, recorder| CpuTime { program, recorder };
        let ratios = ratios(time(100, 100), time(150, 250));
        assert_eq!((ratios.program, ratios.total), (1.5, 2.0));
        let log = Log {
            instructions: 1 << 30,
            compressed: 1 << 28,
            raw: 1 << 31,
            segments: 2048,
            lost: 0,
        };
        let row = Row {
            program: real::find("gzip").unwrap(),
            ring: Err("killed".to_owned()),
            full: Ok((ratios, log)),
        };
        let text = markdown(&Options::default(), &[row]);
        let cells = "| fails | 2.00× (1.50×) | 1074 | 0.250 | 2.00 | 537 | 2048 | 0 |\n";
        assert!(text.contains(cells), "{text}");
        assert!(text.ends_with("\ngzip: killed\n"), "{text}");
    }
}
