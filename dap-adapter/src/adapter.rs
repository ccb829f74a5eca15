//! One session with a client: what it said of itself, what it opened, and the requests in their order.

use crate::access::Access;
use crate::debuggee::Debuggee;
use crate::dispatch::dispatch;
use crate::failure::{Failure, Result};
use crate::outbox::Outbox;
use crate::pending::{Cancel, Pending};
use crate::progress::Teller;
use crate::protocol::message::Request;
use crate::protocol::types::{InitializeRequestArguments, InvalidatedAreas, InvalidatedEventBody, Message};
use crate::requests::motion::Move;
use crate::stopped::{self, Why};
use backtrail_decoder::Watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is to be done once a request is answered.
pub enum Then {
    /// Tell that the trace is open, so that the client sets its breakpoints.
    Initialized,
    /// Move, and tell where that ended.
    Move(Move),
    /// Tell that it goes elsewhere, where the client did not ask for a move that it knows: what it shows of the stop is over.
    Continued,
    /// Tell where it stands.
    Stopped(Why),
    /// Tell that the session is over.
    Terminated,
    /// End.
    End,
}

/// A session.
pub struct Adapter {
    /// To the client.
    pub outbox: Outbox,
    /// What waits.
    pub pending: Arc<Pending>,
    /// What it may read and fetch.
    pub access: Access,
    /// What the client said of itself.
    pub client: InitializeRequestArguments,
    /// What is open.
    pub debuggee: Option<Debuggee>,
    /// The client has configured all, and wants to hear where it stands.
    pub configured: bool,
    /// To be done once the request is answered.
    pub then: Vec<Then>,
    /// The client is gone.
    pub ended: bool,
}

impl Adapter {
    /// Without a trace.
    #[must_use]
    pub fn new(outbox: Outbox, pending: Arc<Pending>, access: Access) -> Self {
        Self {
            outbox,
            pending,
            access,
            client: InitializeRequestArguments::default(),
            debuggee: None,
            configured: false,
            then: Vec::new(),
            ended: false,
        }
    }

    /// What is open.
    ///
    /// # Errors
    /// When nothing is.
    pub fn debuggee(&mut self) -> Result<&mut Debuggee> {
        self.debuggee.as_mut().ok_or(Failure::NotLaunched)
    }

    /// Works at a request, and answers it whatever happens.
    pub fn work(&mut self, request: &Request, cancel: &Cancel) {
        self.answer(request, cancel, dispatch);
        self.pending.remove(cancel);
    }

    fn answer(
        &mut self,
        request: &Request,
        cancel: &Cancel,
        dispatch: impl Fn(&mut Self, &Request, &Watch<'_>) -> Result<serde_json::Value>,
    ) {
        self.pending.begins(cancel);
        if cancel.load(Ordering::Relaxed) && !matches!(&*request.command, "disconnect" | "terminate") {
            self.outbox.fail(request, "cancelled", None);
            return;
        }
        let wanted = self.client.supports_progress_reporting == Some(true);
        let teller = Teller::new(
            self.outbox.clone(),
            Arc::clone(&self.pending),
            Arc::clone(cancel),
            wanted,
        );
        let was_partial = self.is_partial();
        let answer = teller.watch(|watch| guarded(|| dispatch(self, request, watch)));
        match answer {
            Ok(body) => self.outbox.respond(request, Ok(body)),
            Err(failure) if failure.is_cancelled() => self.outbox.fail(request, "cancelled", None),
            Err(failure) => {
                let shown = Message {
                    format: failure.to_string(),
                    id: 1,
                    show_user: Some(failure.is_shown()),
                    ..Message::default()
                };
                let shown = serde_json::to_value(shown).ok();
                self.outbox.fail(request, &failure.to_string(), shown);
            }
        }
        for then in std::mem::take(&mut self.then) {
            if let Err(failure) = teller.watch(|watch| guarded(|| self.follow(then, watch))) {
                stopped::tell_failure(self, &failure);
            }
        }
        drop(teller);
        if was_partial && !self.is_partial() {
            self.tell_longer();
        }
    }

    fn follow(&mut self, then: Then, watch: &Watch<'_>) -> Result<()> {
        match then {
            Then::Initialized => self.outbox.event("initialized", ()),
            Then::Move(motion) => motion.make(self, watch)?,
            Then::Continued => stopped::tell_going(self)?,
            Then::Stopped(why) => stopped::tell(self, why, watch)?,
            Then::Terminated => self.outbox.event("terminated", ()),
            Then::End => self.ended = true,
        }
        Ok(())
    }

    fn is_partial(&self) -> bool {
        let debuggee = self.debuggee.as_ref();
        debuggee.is_some_and(|debuggee| debuggee.navigator.session().is_partial())
    }

    /// Takes over what was decoded in the background, if that is done.
    pub fn idle(&mut self) {
        let ready = |debuggee: &&mut Debuggee| debuggee.navigator.session().is_decoded_ahead();
        let Some(debuggee) = self.debuggee.as_mut().filter(ready) else {
            return;
        };
        if debuggee.navigator.decode_earlier(&Watch::none()).is_ok() {
            self.tell_longer();
        }
    }

    /// More history is decoded: stacks may be deeper than they were. What numbers were given out for is the same.
    fn tell_longer(&mut self) {
        if !self.configured {
            return;
        }
        if self.client.supports_invalidated_event == Some(true) {
            self.outbox.event(
                "invalidated",
                InvalidatedEventBody {
                    areas: Some(vec![InvalidatedAreas::Stacks]),
                    ..InvalidatedEventBody::default()
                },
            );
        }
        stopped::tell_place(self, &Watch::none());
    }
}

/// A mistake of ours fails the request, not the session.
fn guarded<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = catch_unwind(AssertUnwindSafe(act));
    done.unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Failure::Cannot(format!(
            "this is a mistake in Backtrail ({}); the session goes on",
            what.unwrap_or_default()
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::{Outgoings, outbox};
    use serde_json::{Value, json};

    fn session() -> (Adapter, Outgoings) {
        let (outbox, outgoings) = outbox();
        (Adapter::new(outbox, Arc::default(), Access::default()), outgoings)
    }

    fn request(seq: i64, command: &str) -> Request {
        Request {
            seq,
            command: command.to_owned(),
            arguments: json!({}),
        }
    }

    #[test]
    fn a_request_that_panics_is_answered_and_the_session_goes_on() {
        let (mut adapter, mut outgoings) = session();
        let cancel = adapter.pending.add(7);
        adapter.answer(&request(7, "threads"), &cancel, |_, _, _| panic!("no such index"));
        let told = outgoings.drain();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0]["success"], &told[0]["request_seq"]),
            (&json!(false), &json!(7))
        );
        assert!(told[0]["message"].as_str().unwrap().contains("no such index"));
        let cancel = adapter.pending.add(8);
        adapter.work(&request(8, "initialize"), &cancel);
        assert_eq!(outgoings.drain()[0]["success"], true);
    }

    #[test]
    fn a_request_that_was_cancelled_is_not_begun() {
        let (mut adapter, mut outgoings) = session();
        let cancel = adapter.pending.add(1);
        assert!(adapter.pending.cancel_request(1));
        adapter.answer(&request(1, "threads"), &cancel, |_, _, _| panic!("it is begun"));
        let told = outgoings.drain();
        assert_eq!(
            (&told[0]["success"], &told[0]["message"]),
            (&json!(false), &json!("cancelled"))
        );
    }

    #[test]
    fn every_request_is_answered_before_a_trace_is_open() {
        let (mut adapter, mut outgoings) = session();
        let commands = [
            "threads",
            "next",
            "stackTrace",
            "backtrail/calls",
            "evaluate",
            "nonsense",
        ];
        for (seq, command) in (1..).zip(commands) {
            let cancel = adapter.pending.add(seq);
            adapter.work(&request(seq, command), &cancel);
        }
        let told = outgoings.drain();
        let answered: Vec<&Value> = told.iter().map(|told| &told["command"]).collect();
        assert_eq!(answered, commands.map(Value::from).iter().collect::<Vec<_>>());
        assert!(told.iter().all(|told| told["type"] == "response"));
    }
}
