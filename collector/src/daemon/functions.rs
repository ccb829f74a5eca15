//! The thread that waits for function triggers: `[[function]]` in the configuration.

use super::report::log_outcome;
use super::state::DaemonState;
use crate::config::FunctionConfig;
use crate::crash::SnapshotRequest;
use crate::history::History;
use crate::probe::{Condition, FunctionLocation, FunctionTrigger};
use backtrail_process::RawTid;
use backtrail_pt::FileOffset;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::PipeReader;
use std::os::fd::AsFd;

/// A trigger and its configuration.
pub(super) struct Trigger {
    setting: FunctionConfig,
    trigger: FunctionTrigger,
}

/// Attaches the configured triggers. Logs those that cannot be attached.
pub(super) fn attach(settings: &[FunctionConfig]) -> Vec<Trigger> {
    let attach = |setting: &FunctionConfig| {
        let offset = setting.symbol.strip_prefix("0x");
        let location = match offset.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(offset) => FunctionLocation::Offset(FileOffset(offset)),
            None => FunctionLocation::Symbol(setting.symbol.clone()),
        };
        let condition = match setting.longer_than {
            Some(bound) => Condition::LongerThan(bound.0),
            None => Condition::Entered,
        };
        match FunctionTrigger::attach(&setting.binary, &location, condition, None) {
            Ok(trigger) => Some(Trigger {
                setting: setting.clone(),
                trigger,
            }),
            Err(error) => {
                tracing::error!("{error}");
                None
            }
        }
    };
    settings.iter().filter_map(attach).collect()
}

/// Saves processes when their triggers fire, until the other end of `stop` is closed.
pub(super) fn run(shared: &DaemonState, mut triggers: Vec<Trigger>, stop: &PipeReader) {
    let saver = &shared.saver;
    let freezer = saver.history.as_ref().map(History::freezer);
    loop {
        {
            let mut waited: Vec<PollFd<'_>> = triggers
                .iter()
                .flat_map(|trigger| trigger.trigger.descriptors())
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            waited.push(PollFd::new(stop.as_fd(), PollFlags::POLLIN));
            let _ = poll(&mut waited, PollTimeout::NONE);
            if waited.last().and_then(PollFd::any).unwrap_or(false) {
                return;
            }
        }
        for Trigger { setting, trigger } in &mut triggers {
            let name = format!("{} of {}", setting.symbol, setting.binary.display());
            trigger.drain(&mut |hit| {
                saver.metrics.functions_seen.count();
                let user = saver.users.of_thread(hit.tid.0 as RawTid);
                if !saver.admits(user, &name) {
                    return;
                }
                let note = match hit.lasted {
                    Some(lasted) => format!("a call of {name} in thread {} took {lasted:?}", hit.tid),
                    None => format!("thread {} called {name}", hit.tid),
                };
                let saved = saver.save_snapshot(&SnapshotRequest {
                    pid: Some(hit.pid),
                    trigger: "function",
                    note: Some(note),
                    at: hit.at,
                    frozen: freezer
                        .as_ref()
                        .map(|freezer| freezer.freeze(Some(hit.cpu), Some(hit.at))),
                });
                log_outcome("a function trigger fired in", saved, hit.pid);
            });
        }
    }
}
