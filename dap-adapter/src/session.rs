//! The state of one session with a client.

use crate::access::Access;
use crate::debuggee::Debuggee;
use crate::failure::{Failure, Result};
use crate::outbox::Outbox;
use crate::pending::Pending;
use crate::protocol::types::InitializeRequestArguments;
use backtrail_debugger::{Direction, Motion, Stop};
use backtrail_pt::Tid;
use std::sync::Arc;

/// An action that the server performs after it answered a request.
pub enum FollowUp {
    /// Reports that the trace is open, so that the client sets its breakpoints.
    Initialized,
    /// Moves, and reports the stop.
    Move(RequestedMove),
    /// Reports that the threads run, before a jump that the client did not request by a protocol
    /// move.
    Continued,
    /// Reports the current position as a stop.
    Stopped(StopCause),
    /// Reports that the session is over.
    Terminated,
    /// Ends the session.
    End,
}

/// A move that a client requested.
pub struct RequestedMove {
    /// The thread that moves.
    pub tid: Tid,
    /// The motion.
    pub motion: Motion,
    /// The direction of the motion.
    pub direction: Direction,
    /// Whether `continue` stays in the thread.
    pub single_thread: bool,
}

/// The cause of a stop, for the `stopped` event.
#[derive(Clone, Debug)]
pub enum StopCause {
    /// The session began or restarted.
    Opened,
    /// A jump to a position.
    Jumped,
    /// A move that ended.
    Moved(Box<Stop>),
    /// A move that the user stopped. It is undone.
    Paused,
}

/// The state of a session with a client.
pub struct ClientSession {
    /// Sends responses and events to the client.
    pub outbox: Outbox,
    /// The requests that wait or run.
    pub pending: Arc<Pending>,
    /// The files and origins that the session may read.
    pub access: Access,
    /// The arguments of the client's `initialize` request.
    pub features: InitializeRequestArguments,
    /// The open trace.
    pub debuggee: Option<Debuggee>,
    /// Whether the client sent `configurationDone`.
    pub configured: bool,
    /// The actions that follow the response to the current request.
    pub follow_ups: Vec<FollowUp>,
    /// Whether the client disconnected.
    pub ended: bool,
}

impl ClientSession {
    /// Returns a session without a trace.
    #[must_use]
    pub fn new(outbox: Outbox, pending: Arc<Pending>, access: Access) -> Self {
        Self {
            outbox,
            pending,
            access,
            features: InitializeRequestArguments::default(),
            debuggee: None,
            configured: false,
            follow_ups: Vec::new(),
            ended: false,
        }
    }

    /// Returns the open trace.
    ///
    /// # Errors
    /// If no trace is open.
    pub fn debuggee(&mut self) -> Result<&mut Debuggee> {
        self.debuggee.as_mut().ok_or(Failure::NotLaunched)
    }

    /// Returns whether the trace is open and part of its history is not decoded yet.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        let debuggee = self.debuggee.as_ref();
        debuggee.is_some_and(|debuggee| debuggee.navigator.session().is_partial())
    }
}
