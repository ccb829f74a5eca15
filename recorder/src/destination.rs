//! The output of a recording: one bundle, or one for each crash.

use crate::clock::Calibration;
use crate::crash_sink::CrashSink;
use crate::ptrace::RawTid;
use crate::recorded::SaveTotals;
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::manifest::{Crash, Ending};
use backtrail_bundle::{BundlePath, Writer};
use std::collections::HashMap;
use std::time::SystemTime;

/// The output of a session.
pub(crate) enum Destination<'a> {
    /// One bundle, written at the end.
    Bundle(Writer),
    /// One bundle for each crash.
    Crashes(Crashes<'a>),
}

/// The crash output of a session.
pub(crate) struct Crashes<'a> {
    pub(crate) sink: &'a mut dyn CrashSink,
    pub(crate) calibration: Calibration,
    /// Bundles of processes that are not removed yet.
    pub(crate) drafts: HashMap<RawTid, PendingCrash>,
    /// Totals of the saved crashes.
    pub(crate) saved: SaveTotals,
}

/// The bundle of a process that has crashed but not ended yet, or that has ended. Everything that
/// must be read before its end is in the bundle.
#[derive(Debug)]
pub(crate) struct PendingCrash {
    pub(crate) writer: Writer,
    pub(crate) crash: Option<Crash>,
    /// How the process ended, if it did not crash.
    pub(crate) ending: Option<Ending>,
    pub(crate) core: Option<BundlePath>,
    /// The context that the process published.
    pub(crate) context: Option<PublishedContext>,
    /// The systemd service of the process.
    pub(crate) service: Option<String>,
    /// Messages about missing parts.
    pub(crate) missing: Vec<String>,
    /// When the process was stopped.
    pub(crate) at: SystemTime,
}

impl<'a> Crashes<'a> {
    /// Starts with no crashes.
    pub(crate) fn new(sink: &'a mut dyn CrashSink, calibration: Calibration) -> Self {
        Self {
            sink,
            calibration,
            drafts: HashMap::new(),
            saved: SaveTotals::default(),
        }
    }
}
