//! `backtrail crashes`: lists and opens the crashes that the collector saved.

use super::debug;
use crate::args::{self, CrashSelection, Crashes, CrashesDebug, CrashesList, SpoolOptions};
use crate::exit::Failure;
use crate::output::Output;
use crate::published_context::{self, ContextInfo};
use crate::shell;
use crate::terminal::plain;
use backtrail_collector::config::{Size, signal_name};
use backtrail_collector::spool::{Spool, StoredBundle};
use backtrail_collector::{Config, link};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Runs the subcommand.
pub fn run(crashes: &Crashes) -> Result<(), Failure> {
    match crashes {
        Crashes::List(args) => list(args),
        Crashes::Show(args) => show(args),
        Crashes::Debug(args) => walk(args),
        Crashes::Link(args) => print_link(args),
    }
}

fn spool(options: &SpoolOptions) -> Result<Spool, Failure> {
    let directory = match &options.spool {
        Some(directory) => directory.clone(),
        None => Config::load(options.config.as_deref())?.spool,
    };
    Ok(Spool::open(&directory, Size(u64::MAX), Size(0)))
}

/// A crash as JSON.
#[derive(Serialize)]
struct CrashRow<'a> {
    id: &'a str,
    /// Nanoseconds since 1970, as text, because JSON numbers lose precision at that size.
    time: Option<String>,
    pid: Option<u32>,
    tid: Option<u32>,
    executable: Option<&'a str>,
    /// The real user id of the process.
    user: Option<u32>,
    /// The user whose recorder submitted the bundle. That user controls everything else in it.
    deposited_by: Option<u32>,
    signal: Option<i32>,
    signal_name: Option<String>,
    bundle: &'a Path,
    /// The context that the process published.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<ContextInfo>,
    trigger: &'a str,
    crash_to_reader_us: Option<f64>,
    crash_to_stop_us: Option<f64>,
    crash_to_held_us: Option<f64>,
    held_us: Option<f64>,
    history_bytes: u64,
    overwritten_bytes: Option<u64>,
    probe: Option<&'a str>,
    complete: bool,
    missing: Vec<&'a str>,
    sent: bool,
}

fn microseconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / 1000.0)
}

impl<'a> CrashRow<'a> {
    fn new(stored: &'a StoredBundle) -> Self {
        let collected = &stored.collected;
        let missing: Vec<&str> = stored.missing().collect();
        Self {
            id: &stored.id,
            time: collected.time.map(rfc3339),
            pid: stored.crash.map(|crash| crash.pid.0),
            tid: stored.crash.map(|crash| crash.tid.0),
            executable: stored.executable.as_deref(),
            user: collected.user,
            deposited_by: collected.deposited_by,
            signal: stored.crash.map(|crash| crash.signal),
            signal_name: stored.crash.map(|crash| signal_name(crash.signal)),
            bundle: &stored.path,
            context: stored.context.as_ref().map(ContextInfo::new),
            trigger: &collected.trigger,
            crash_to_reader_us: microseconds(collected.crash_to_reader),
            crash_to_stop_us: microseconds(collected.crash_to_stop),
            crash_to_held_us: microseconds(collected.crash_to_held),
            held_us: microseconds(collected.held),
            history_bytes: collected.history,
            overwritten_bytes: collected.overwritten,
            probe: collected.probe.as_deref(),
            complete: missing.is_empty(),
            missing,
            sent: stored.sent,
        }
    }

    /// Returns the program for display. If only a user's recorder states it, that user comes first,
    /// so that no name can hide it.
    fn program(&self, unknown: &str) -> String {
        let program = plain(self.executable.unwrap_or(unknown));
        match self.deposited_by {
            Some(user) => format!("by user {user}'s recorder: {program}"),
            None => program,
        }
    }
}

/// Formats a time as `2026-11-23T00:25:24.123Z`.
fn rfc3339(nanos: u64) -> String {
    let (seconds, millis) = (nanos / 1_000_000_000, nanos / 1_000_000 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day comes last and all eras of 400 years are
    // alike.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let day = day - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

fn list(args: &CrashesList) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct List<'a> {
        spool: &'a Path,
        dropped: u64,
        crashes: Vec<CrashRow<'a>>,
    }
    let spool = spool(&args.spool)?;
    let entries = spool.entries()?;
    let mut output = Output::new();
    if args.json {
        let list = List {
            spool: spool.directory(),
            dropped: spool.dropped(),
            crashes: entries.iter().map(CrashRow::new).collect(),
        };
        output.json("backtrail-crashes/1", &list)?;
        return output.finish();
    }
    for stored in &entries {
        let row = CrashRow::new(stored);
        let time = row.time.as_deref().unwrap_or("-");
        let signal = row.signal_name.as_deref().unwrap_or("-");
        let executable = plain(&row.program("-"));
        write!(output, "{}  {time}  {signal}  {executable}", plain(row.id))?;
        if !row.complete {
            write!(output, "  (incomplete)")?;
        }
        writeln!(output)?;
    }
    if entries.is_empty() {
        let directory = spool.directory().display().to_string();
        writeln!(output, "no crashes in {}", plain(&directory))?;
    }
    if spool.dropped() != 0 {
        writeln!(
            output,
            "{} older crashes were removed to free space",
            spool.dropped()
        )?;
    }
    output.finish()
}

fn show(args: &CrashSelection) -> Result<(), Failure> {
    let stored = spool(&args.spool)?.find(&args.id)?;
    let row = CrashRow::new(&stored);
    let mut output = Output::new();
    if args.json {
        output.json("backtrail-crash/1", &row)?;
        return output.finish();
    }
    let mut line = |name: &str, text: String| writeln!(output, "{name:<11}{}", plain(&text));
    line("id", row.id.to_owned())?;
    line("time", row.time.clone().unwrap_or_else(|| "unknown".to_owned()))?;
    line("program", row.program("unknown"))?;
    if let Some(user) = row.user {
        line("user", user.to_string())?;
    }
    if let Some(user) = row.deposited_by {
        line(
            "from",
            format!("user {user}'s recorder, which supplied all data shown here"),
        )?;
    }
    match stored.crash {
        Some(crash) => {
            let address = crash
                .fault_address
                .map_or_else(String::new, |at| format!(", address {at}"));
            let (signal, pid, tid, pc) = (signal_name(crash.signal), crash.pid, crash.tid, crash.pc);
            line(
                "crash",
                format!("{signal} in thread {tid} of process {pid} at {pc}{address}"),
            )?;
        }
        None => line("trigger", row.trigger.to_owned())?,
    }
    let crashed = stored.crash.map(|crash| crash.tid);
    for (name, text) in stored
        .context
        .iter()
        .flat_map(|context| published_context::lines(context, crashed))
    {
        line(name, text)?;
    }
    let times = [
        ("read after", row.crash_to_reader_us),
        ("paused", row.crash_to_stop_us),
        ("held after", row.crash_to_held_us),
        ("held for", row.held_us),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            line(name, format!("{time:.0} us"))?;
        }
    }
    if let Some(probe) = row.probe {
        line("reported", probe.to_owned())?;
    }
    match row.history_bytes {
        0 => line("history", "none".to_owned())?,
        bytes => line("history", format!("{bytes} bytes"))?,
    }
    for missing in &row.missing {
        line("missing", (*missing).to_owned())?;
    }
    line("bundle", row.bundle.display().to_string())?;
    line("next", format!("backtrail crashes debug {}", shell::word(row.id)))?;
    output.finish()
}

fn walk(args: &CrashesDebug) -> Result<(), Failure> {
    let stored = spool(&args.spool)?.find(&args.id)?;
    debug::run(&args::Debug {
        input: Some(stored.path),
        core_dir: std::path::PathBuf::new(),
        at: None,
        batch: args.batch,
        no_pager: false,
        commands: args.commands.clone(),
        file: None,
        json: args.json,
        decode: args.decode.clone(),
    })
}

fn print_link(args: &CrashSelection) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct CrashLink<'a> {
        id: &'a str,
        link: String,
    }
    let stored = spool(&args.spool)?.find(&args.id)?;
    let link = link::to(&stored.id);
    let mut output = Output::new();
    if args.json {
        output.json("backtrail-crash-link/1", &CrashLink { id: &stored.id, link })?;
    } else {
        writeln!(output, "{link}")?;
    }
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_by_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_795_393_524, "2026-11-23T00:25:24.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000_000), expected);
        }
    }
}
