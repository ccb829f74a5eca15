//! One thread under the recorder, whichever engine follows it.

use crate::ptrace::RawTid;
use crate::recorded::Packets;
use crate::stepped::{Place, Stepped};
use crate::translate::{Scribe, Translated};
use backtrail_bundle::core::SigInfo;
use backtrail_bundle::versions::Boundary;
use backtrail_pt::Avma;

/// What ptrace has it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Running, or in the kernel.
    Running,
    /// In a ptrace-stop.
    Stopped,
    /// In a group-stop, as its shell wants it.
    Listening,
}

/// How a thread is followed.
#[derive(Debug)]
pub(crate) enum Following {
    /// One instruction at a time.
    Stepped(Box<Stepped>),
    /// To be translated from its first stop in user code on.
    Arriving,
    /// In the code cache.
    Translated(Box<Translated>),
    /// Not any more: it runs freely to its end.
    Over,
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: RawTid,
    pub(crate) pid: RawTid,
    /// Its name when the core was written: of a thread that a crash ends nobody can ask for it later.
    pub(crate) name: Option<String>,
    pub(crate) run: Run,
    /// The signal to deliver on resuming.
    pub(crate) signal: Option<SigInfo>,
    pub(crate) following: Following,
}

/// What a thread's recording came to.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) packets: Packets,
    pub(crate) dropped: u64,
    /// `None`: they were not counted.
    pub(crate) instructions: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) gaps: u64,
    pub(crate) golden: Vec<Avma>,
    /// Where code has changed, in the packets.
    pub(crate) boundaries: Vec<Boundary>,
    /// Why packets were lost, if any were.
    pub(crate) failure: Option<std::io::Error>,
}

impl Thread {
    /// A stopped thread.
    pub(crate) fn new(tid: RawTid, pid: RawTid, following: Following) -> Self {
        Self {
            tid,
            pid,
            name: None,
            run: Run::Stopped,
            signal: None,
            following,
        }
    }

    /// Ends the stream with the thread at `ip`, where that is known.
    pub(crate) fn close(&mut self, ip: Option<Avma>, scribe: Option<&Scribe>) {
        match &mut self.following {
            Following::Stepped(stepped) => stepped.close(ip),
            Following::Translated(translated) => {
                if let (Some(ip), Some(scribe)) = (ip, scribe) {
                    translated.close(ip.0, scribe);
                }
            }
            Following::Arriving | Following::Over => {}
        }
    }

    /// Its stream has ended; it runs freely.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.following {
            Following::Stepped(stepped) => stepped.place == Place::Closed,
            Following::Translated(translated) => translated.is_closed(),
            Following::Arriving => false,
            Following::Over => true,
        }
    }

    /// Instructions and bytes recorded so far, as far as they are counted here.
    pub(crate) fn progress(&self) -> (u64, u64) {
        match &self.following {
            Following::Stepped(stepped) => (stepped.stream.instructions, stepped.stream.written()),
            _ => (0, 0),
        }
    }

    /// Takes what was recorded; `None`: nothing was.
    pub(crate) fn finish(&mut self, scribe: Option<&Scribe>) -> Option<Finished> {
        match std::mem::replace(&mut self.following, Following::Over) {
            Following::Stepped(mut stepped) => {
                stepped.close(None);
                let (instructions, gaps) = (stepped.stream.instructions, stepped.stream.gaps);
                let bytes = stepped.stream.written();
                let (packets, dropped, golden) = stepped.stream.finish();
                Some(Finished {
                    packets: Packets::Kept(packets),
                    dropped,
                    instructions: Some(instructions),
                    bytes,
                    gaps,
                    golden,
                    boundaries: Vec::new(),
                    failure: None,
                })
            }
            Following::Translated(translated) => translated.finish(scribe?),
            Following::Arriving | Following::Over => None,
        }
    }
}
