//! `backtrail profile agent`: samples a host without end, and sends the profiles to the hub.
//!
//! The recorder writes a spool of files, which the sender takes. A file is removed when the hub has
//! acknowledged it. So neither a kill of this program nor an outage of the hub loses samples, as
//! long as the spool has room.

use super::agent_requests::Requests;
use super::record_options::{sampled_events, stack_method};
use crate::args::ProfileAgent;
use crate::exit::Failure;
use crate::hub::settings;
use crate::interrupt::Interrupt;
use crate::terminal;
use backtrail_profiler::spool::{SpooledFile, complete_files};
use backtrail_profiler::{RecordOptions, RecordingOutput, SpoolOptions, Target};
use backtrail_profiler::{record_with_requests, requests};
use backtrail_report::client::{Error, HubClient, ProfileOrigin};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time between two checks of the spool.
const LOOK: Duration = Duration::from_millis(250);
/// The shortest and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The time that the last profiles have after the end.
const GRACE: Duration = Duration::from_secs(10);
/// The extension of a profile that the hub refused. It is kept for a person to read.
const REFUSED: &str = "refused";
/// The time for which a refused profile is kept.
const KEEP_REFUSED: Duration = Duration::from_secs(24 * 3600);

/// Samples and sends until the time is over, or Ctrl-C.
pub fn run(args: &ProfileAgent) -> Result<(), Failure> {
    let client = settings::client(&args.hub)?;
    let interrupt = Interrupt::install();
    if args.attached {
        end_with_input(interrupt.shared_flag());
    }
    let options = RecordOptions {
        target: Target::All,
        events: sampled_events(&args.event, None)?,
        frequency: args.freq,
        stack_method: stack_method(args.stacks),
        duration: args.duration,
        output: RecordingOutput::Spool(SpoolOptions {
            directory: args.spool.clone(),
            interval: args.interval,
            max_bytes: args.max_size,
        }),
        cpu_budget: args.cpu_budget,
    };
    let mut sender = Sender {
        client,
        origin: origin(args),
        spool: &args.spool,
        sent: 0,
        failures: 0,
        next: Instant::now(),
    };
    let is_over = AtomicBool::new(false);
    let (requester, recorder_requests) = requests();
    let hub_requests = Requests {
        client: sender.client.clone(),
        origin: sender.origin.clone(),
        requester,
        spool: &args.spool,
        stack_method: options.stack_method,
        cpu_budget: args.cpu_budget,
        stop: interrupt.flag(),
        is_over: &is_over,
    };
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| hub_requests.run());
        let (options, stop, is_over) = (&options, interrupt.flag(), &is_over);
        let recorder = scope.spawn(move || {
            let summary = record_with_requests(options, recorder_requests, stop, &mut |_| {});
            is_over.store(true, Ordering::Release);
            summary
        });
        while !is_over.load(Ordering::Acquire) {
            sender.send_due();
            std::thread::sleep(LOOK);
        }
        recorder.join()
    });
    let summary = summary.map_err(|_| Failure::failed("the recorder ended with an internal error"))??;
    let end = Instant::now() + GRACE;
    let mut left = sender.waiting();
    while !left.is_empty() && Instant::now() < end {
        sender.send_due();
        left = sender.waiting();
        if !left.is_empty() {
            std::thread::sleep(LOOK);
        }
    }
    for note in &summary.notes {
        eprintln!("note: {note}");
    }
    eprintln!(
        "{} samples, {} records lost; {} profiles sent, {} wait in {}",
        summary.progress.samples,
        summary.progress.lost,
        sender.sent,
        left.len(),
        args.spool.display()
    );
    Ok(())
}

/// Sets a flag when standard input ends, which is when the daemon ends.
fn end_with_input(flag: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        flag.store(true, Ordering::Relaxed);
    });
}

fn origin(args: &ProfileAgent) -> ProfileOrigin {
    let text = |option: &Option<String>| option.clone().unwrap_or_default();
    ProfileOrigin {
        host: match &args.host {
            Some(host) => host.clone(),
            None => fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap_or_default()
                .trim()
                .to_owned(),
        },
        service: text(&args.service),
        build: text(&args.build),
        region: text(&args.region),
        request: String::new(),
    }
}

struct Sender<'a> {
    client: HubClient,
    origin: ProfileOrigin,
    spool: &'a Path,
    sent: u64,
    /// Failures since the last success.
    failures: u32,
    /// The time of the next attempt.
    next: Instant,
}

impl Sender<'_> {
    fn waiting(&self) -> Vec<SpooledFile> {
        complete_files(self.spool).unwrap_or_default()
    }

    /// Sends all complete profiles, the oldest first, until one fails.
    fn send_due(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        for file in self.waiting() {
            match self.send(&file.path) {
                Ok(()) => {
                    if self.failures > 0 {
                        eprintln!("the hub takes profiles again");
                    }
                    self.failures = 0;
                }
                Err(pause) => {
                    self.failures = self.failures.saturating_add(1);
                    self.next = Instant::now() + pause;
                    return;
                }
            }
        }
    }

    /// Sends a profile, and removes it. `Err`: the pause until the next attempt.
    fn send(&mut self, path: &Path) -> Result<(), Duration> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            // The recorder removed it to make room.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.report(&format!("cannot read {}: {error}", path.display()));
                return Err(PAUSES.1);
            }
        };
        match self.client.send_profile(&self.origin, &bytes) {
            Ok(()) => {
                self.sent += 1;
                self.remove(path);
                Ok(())
            }
            Err(
                error @ Error::Refused {
                    code: 400 | 413 | 415 | 422,
                    ..
                },
            ) => {
                self.refuse(path, &error);
                Ok(())
            }
            Err(error) => {
                self.report(&error.to_string());
                Err(error.retry_after().unwrap_or_else(|| self.pause()))
            }
        }
    }

    fn pause(&self) -> Duration {
        (PAUSES.0 * 2_u32.saturating_pow(self.failures.min(6))).min(PAUSES.1)
    }

    fn remove(&self, path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                // The hub counts it once, however often it is sent.
                self.report(&format!("cannot remove {}: {error}", path.display()));
            }
            _ => {}
        }
    }

    /// Sets a profile aside that the hub will never take.
    fn refuse(&self, path: &Path, error: &Error) {
        let aside = path.with_extension(REFUSED);
        terminal::print_error(&format!("{error}; the profile stays at {}", aside.display()));
        if let Err(error) = fs::rename(path, &aside) {
            terminal::print_error(&format!("cannot rename {}: {error}", path.display()));
        }
        for entry in fs::read_dir(self.spool).into_iter().flatten().flatten() {
            let path = entry.path();
            let age = entry
                .metadata()
                .ok()
                .and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
            if path.extension().is_some_and(|found| found == REFUSED) && age > Some(KEEP_REFUSED) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Reports a failure, once for all that follow each other.
    fn report(&self, problem: &str) {
        if self.failures == 0 {
            terminal::print_error(&format!(
                "{problem}; the profiles wait in {}",
                self.spool.display()
            ));
        }
    }
}
