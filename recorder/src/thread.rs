//! One traced thread, independent of the engine.

use crate::ptrace::RawTid;
use crate::recorded::{FinishedStream, Packets};
use crate::signal_state::SignalState;
use crate::stepped::{StepPosition, Stepped};
use crate::translate::{EncoderPool, Translated};
use crate::values::ValueRecorder;
use backtrail_bundle::core::SigInfo;
use backtrail_pt::Avma;

/// The state of a thread, as ptrace sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// Running, or in the kernel.
    Running,
    /// In a ptrace-stop.
    Stopped,
    /// In a group-stop, as job control expects.
    Listening,
}

/// How a thread is traced.
#[derive(Debug)]
pub(crate) enum FollowMode {
    /// Single-stepped.
    Stepped(Box<Stepped>),
    /// To be translated from its first stop in user code.
    AwaitingUserCode,
    /// Running in the code cache.
    Translated(Box<Translated>),
    /// No longer recorded: runs freely until it ends.
    Untraced,
}

/// A traced thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: RawTid,
    pub(crate) pid: RawTid,
    /// The thread name when the core was written. It cannot be read after a crash has ended the
    /// thread.
    pub(crate) name: Option<String>,
    pub(crate) run: RunState,
    /// The signal to deliver when the thread is resumed.
    pub(crate) signal: Option<SigInfo>,
    pub(crate) mode: FollowMode,
    pub(crate) signals: SignalState,
}

impl Thread {
    /// Builds a stopped thread. No signal of the recorder may have stopped it.
    pub(crate) fn new(tid: RawTid, pid: RawTid, mode: FollowMode) -> Self {
        Self {
            tid,
            pid,
            name: None,
            run: RunState::Stopped,
            signal: None,
            mode,
            signals: SignalState::of(tid),
        }
    }

    /// Ends the stream with the thread at `ip`, if that is known.
    pub(crate) fn close(&mut self, ip: Option<Avma>, encoders: Option<&EncoderPool>) {
        match &mut self.mode {
            FollowMode::Stepped(stepped) => stepped.close(ip),
            FollowMode::Translated(translated) => {
                if let (Some(ip), Some(encoders)) = (ip, encoders) {
                    translated.close(ip.0, encoders);
                }
            }
            FollowMode::AwaitingUserCode | FollowMode::Untraced => {}
        }
    }

    /// Returns whether the stream has ended, so that the thread runs freely.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.mode {
            FollowMode::Stepped(stepped) => stepped.position == StepPosition::Closed,
            FollowMode::Translated(translated) => translated.is_closed(),
            FollowMode::AwaitingUserCode => false,
            FollowMode::Untraced => true,
        }
    }

    /// Returns the instructions and packet bytes counted so far. Translated threads are counted
    /// elsewhere.
    pub(crate) fn progress(&self) -> (u64, u64) {
        match &self.mode {
            FollowMode::Stepped(stepped) => (stepped.stream.instructions, stepped.stream.written()),
            _ => (0, 0),
        }
    }

    /// Ends recording of the thread and returns its packets, if there are any.
    pub(crate) fn finish(&mut self, encoders: Option<&EncoderPool>) -> Option<FinishedStream> {
        match std::mem::replace(&mut self.mode, FollowMode::Untraced) {
            FollowMode::Stepped(mut stepped) => {
                stepped.close(None);
                let (instructions, gaps) = (stepped.stream.instructions, stepped.stream.gaps);
                let bytes = stepped.stream.written();
                let values = stepped.values.take().map(ValueRecorder::finish);
                let finished = stepped.stream.finish();
                Some(FinishedStream {
                    packets: Packets::InMemory(finished.packets),
                    dropped: finished.dropped,
                    instructions: Some(instructions),
                    bytes,
                    gaps,
                    golden: finished.golden,
                    boundaries: finished.boundaries,
                    values,
                    failure: None,
                })
            }
            FollowMode::Translated(translated) => translated.finish(encoders?),
            FollowMode::AwaitingUserCode | FollowMode::Untraced => None,
        }
    }
}
