//! `backtrail record --daemon`: runs a service, and saves its crashes into the collector's spool.

use super::{Destination, options};
use crate::args::Record;
use crate::command::last_word::Witness;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use backtrail_bundle::manifest::Crash;
use backtrail_collector::Config;
use backtrail_collector::config::{Core, signal_name};
use backtrail_collector::minder::Minder;
use backtrail_pt::Pid;
use backtrail_recorder::{
    CrashDraft, CrashSink, Ending, Error, Memory, Progress, RecordOptions, SavedCrash, record,
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

/// Signals that a service manager or a user sends to the started process.
const PASSED_ON: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
/// The interval between searches for a missing collector.
const PERIOD: Duration = Duration::from_secs(5);

/// Records until the program ends, and ends as it has ended.
pub(super) fn run(args: &Record) -> Result<(), Failure> {
    let config = Config::load(args.config.as_deref())?;
    let mut service = Service::new(&config)?;
    let mut looked = Instant::now();
    let minder = Arc::clone(&service.minder);
    let mut look = |_: Progress| {
        if looked.elapsed() >= PERIOD {
            looked = Instant::now();
            lock(&minder).refresh();
        }
    };
    let mut witness = Witness::begin(args.pid);
    let mut started = |pid: Pid| witness.started(pid);
    // A process that was not started here is let go by the signals that would have ended it.
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
            Destination::Crashes(&mut service),
            interrupt.as_ref().map_or(&never, Interrupt::flag),
        )
    })?;
    drop((witness, interrupt));
    // The exits below run no destructors, so these remove their files here.
    drop((service, minder));
    if let Some(why) = outcome.failure {
        return Err(Failure::failed(format_args!("recording ended early: {why}")));
    }
    match outcome.ending {
        Ending::Running | Ending::Exited(0) => Ok(()),
        Ending::Exited(status) => std::process::exit(status),
        // As shells report it.
        Ending::Killed(signal) => std::process::exit(128 + signal),
    }
}

/// Returns the signals from now on, except ignored ones, which the program ignores too.
fn catch() -> std::io::Result<Receiver<i32>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = ignored(&status);
    let wanted = PASSED_ON
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

/// Bit n-1: signal n is ignored (`SigIgn` of proc_pid_status(5)).
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Where its crashes go.
struct Service {
    minder: Arc<Mutex<Minder>>,
    /// The names of the bundles that are being written, by process.
    drafts: HashMap<Pid, String>,
    /// The collector was found missing, and that was said.
    warned: bool,
}

impl Service {
    fn new(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            minder: Arc::new(Mutex::new(Minder::new(config)?)),
            drafts: HashMap::new(),
            warned: false,
        })
    }

    /// The collector is to do what it can.
    fn give_up(&mut self, pid: Pid, why: impl Display) {
        self.drafts.remove(&pid);
        lock(&self.minder).forget(pid.0);
        say(format_args!(
            "the crash of process {pid} could not be saved: {why}"
        ));
    }
}

impl CrashSink for Service {
    fn process_began(&mut self, pid: Pid) {
        let mut minder = lock(&self.minder);
        if let Err(error) = minder.mind(pid.0)
            && !self.warned
        {
            self.warned = true;
            if minder.saves_alone() {
                let spool = minder.spool().display();
                say(format_args!(
                    "{error}; until then crashes are saved to {spool} without it"
                ));
            } else {
                say(format_args!(
                    "{error}; until then crashes are not saved, because only the collector may write to the spool"
                ));
            }
        }
    }

    fn process_ended(&mut self, pid: Pid) {
        lock(&self.minder).forget(pid.0);
    }

    fn crashed(&mut self, crash: &Crash, name: &str) -> Option<CrashDraft> {
        let mut minder = lock(&self.minder);
        let config = minder.crash();
        if !config.signals.contains(crash.signal) {
            return None;
        }
        let memory = match config.core {
            Core::Full => Memory::UpTo(config.core_limit.0),
            Core::Stacks => Memory::Stacks,
            Core::None => Memory::Nothing,
        };
        let draft = minder.begin(name, crash.pid.0);
        drop(minder);
        match draft {
            Ok(draft) => {
                self.drafts.insert(crash.pid, draft.id);
                Some(CrashDraft {
                    writer: draft.writer,
                    memory,
                })
            }
            Err(error) => {
                self.give_up(crash.pid, error);
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
        let finished = lock(&self.minder).finish(&id, writer, manifest);
        match finished {
            Ok(id) => say(format_args!("{} ended process {pid}: {id}", signal_name(signal))),
            Err(error) => self.give_up(pid, error),
        }
    }

    fn failed(&mut self, pid: Pid, error: Error) {
        self.give_up(pid, error);
    }
}

fn lock(minder: &Mutex<Minder>) -> MutexGuard<'_, Minder> {
    minder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line on standard error: standard output is the program's.
fn say(what: impl Display) {
    crate::output::complain(&what.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_is_known() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000440\n";
        assert_eq!(ignored(status), 1 << (SIGHUP - 1) | 1 << 12);
        assert_eq!(ignored(""), 0);
    }
}
