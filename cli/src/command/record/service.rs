//! `backtrail record --daemon`: runs a service, and saves its crashes to the collector's spool.

use super::options::options;
use crate::args::Record;
use crate::command::last_word::KillMonitor;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use backtrail_bundle::manifest::Crash;
use backtrail_collector::Config;
use backtrail_collector::config::{CorePolicy, signal_name};
use backtrail_collector::recorder_client::RecorderClient;
use backtrail_pt::Pid;
use backtrail_recorder::{
    CrashDraft, CrashSink, Ending, Error, Memory, Output, Progress, RecordOptions, SavedCrash, record,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The signals that a service manager or a user sends to the process that it started.
const FORWARDED: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
/// The interval of checks for a collector that was missing.
const PERIOD: Duration = Duration::from_secs(5);

/// Records until the program exits, and exits in the same way.
pub(super) fn run(args: &Record) -> Result<(), Failure> {
    let config = Config::load(args.config.as_deref())?;
    let mut service = Service::new(&config)?;
    let mut looked = Instant::now();
    let client = Arc::clone(&service.client);
    let mut look = |_: Progress| {
        if looked.elapsed() >= PERIOD {
            looked = Instant::now();
            lock(&client).refresh();
        }
    };
    let mut witness = KillMonitor::begin(args.pid);
    let mut started = |pid: Pid| witness.started(pid);
    // A process that was attached is detached by the signals that would have ended it.
    let interrupt = args.pid.map(|_| Interrupt::install());
    let never = AtomicBool::new(false);
    let signals = match args.pid {
        Some(_) => None,
        None => {
            Some(catch().map_err(|error| Failure::failed(format_args!("cannot set up signals: {error}")))?)
        }
    };
    let outcome = record(RecordOptions {
        signals,
        progress: Some(&mut look),
        started: Some(&mut started),
        ..options(
            args,
            Output::Crashes(&mut service),
            interrupt.as_ref().map_or(&never, Interrupt::flag),
        )
    })?;
    drop((witness, interrupt));
    // Temporary files on disk are only removed by destructors.
    drop((service, client));
    if let Some(reason) = outcome.failure {
        return Err(Failure::failed(format_args!("recording ended early: {reason}")));
    }
    match outcome.ending {
        Ending::Running | Ending::Exited(0) => Ok(()),
        Ending::Exited(status) => std::process::exit(status),
        // Shells report signals in this way.
        Ending::Killed(signal) => std::process::exit(128 + signal),
    }
}

/// Catches signals from now on, except those that are ignored: the program ignores them as well.
fn catch() -> std::io::Result<Receiver<i32>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = ignored(&status);
    let wanted = FORWARDED
        .into_iter()
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(wanted)?;
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            // The thread ends with the process.
            for signal in signals.forever() {
                if sender.send(signal).is_err() {
                    return;
                }
            }
        })?;
    Ok(receiver)
}

/// Returns the set of ignored signals: bit n-1 means signal n (`SigIgn` of
/// proc_pid_status(5)).
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// The destination of the service's crashes.
struct Service {
    client: Arc<Mutex<RecorderClient>>,
    /// The names of the bundles that are being written, by process.
    drafts: HashMap<Pid, String>,
    /// Whether a missing collector was reported.
    warned: bool,
}

impl Service {
    fn new(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            client: Arc::new(Mutex::new(RecorderClient::new(config)?)),
            drafts: HashMap::new(),
            warned: false,
        })
    }

    /// Leaves the crash to the collector.
    fn leave_to_collector(&mut self, pid: Pid, reason: impl Display) {
        self.drafts.remove(&pid);
        lock(&self.client).release(pid.0);
        print_line(format_args!(
            "could not save the crash of process {pid}: {reason}"
        ));
    }
}

impl CrashSink for Service {
    fn process_began(&mut self, pid: Pid) {
        let mut client = lock(&self.client);
        if let Err(error) = client.claim(pid.0)
            && !self.warned
        {
            self.warned = true;
            if client.works_without_daemon() {
                let spool = client.spool().display();
                print_line(format_args!(
                    "{error}; until then crashes are saved to {spool} without it"
                ));
            } else {
                print_line(format_args!(
                    "{error}; until then crashes are not saved, because only the collector may write to the spool"
                ));
            }
        }
    }

    fn process_ended(&mut self, pid: Pid) {
        lock(&self.client).release(pid.0);
    }

    fn crashed(&mut self, crash: &Crash, name: &str, _program: &str) -> Option<CrashDraft> {
        let mut client = lock(&self.client);
        let config = client.crash();
        if !config.signals.contains(crash.signal) {
            return None;
        }
        let memory = match config.core {
            CorePolicy::Full => Memory::UpTo(config.core_limit.0),
            CorePolicy::Stacks => Memory::Stacks,
            CorePolicy::None => Memory::Nothing,
        };
        let draft = client.begin(name, crash.pid.0);
        drop(client);
        match draft {
            Ok(draft) => {
                self.drafts.insert(crash.pid, draft.id);
                Some(CrashDraft {
                    writer: draft.writer,
                    memory,
                })
            }
            Err(error) => {
                self.leave_to_collector(crash.pid, error);
                None
            }
        }
    }

    fn save(&mut self, saved: SavedCrash) {
        let SavedCrash { writer, mut manifest } = saved;
        let Some(Crash { pid, signal, .. }) = manifest.meta.crash else {
            return;
        };
        let Some(id) = self.drafts.remove(&pid) else {
            return;
        };
        manifest.meta.created_by = Some("record --daemon".to_owned());
        let finished = lock(&self.client).finish(&id, writer, manifest);
        match finished {
            Ok(id) => print_line(format_args!("{} ended process {pid}: {id}", signal_name(signal))),
            Err(error) => self.leave_to_collector(pid, error),
        }
    }

    fn failed(&mut self, pid: Pid, error: Error) {
        self.leave_to_collector(pid, error);
    }
}

fn lock(client: &Mutex<RecorderClient>) -> MutexGuard<'_, RecorderClient> {
    client.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints one line to standard error, because standard output is the program's.
fn print_line(line: impl Display) {
    crate::terminal::print_error(&line.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_ignored_by_nohup_are_known() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000440\n";
        assert_eq!(ignored(status), 1 << (SIGHUP - 1) | 1 << 12);
        assert_eq!(ignored(""), 0);
    }
}
