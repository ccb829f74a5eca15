//! Answers the requests of a session in their order, and performs what follows from them.

use crate::debuggee::Debuggee;
use crate::dispatch::dispatch;
use crate::failure::{Failure, Result};
use crate::pending::Cancel;
use crate::progress::ProgressReporter;
use crate::protocol::message::Request;
use crate::protocol::types::{InvalidatedAreas, InvalidatedEventBody, Message};
use crate::requests::stepping;
use crate::session::{ClientSession, FollowUp};
use crate::stop_events;
use backtrail_decoder::Watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How the names of our own requests begin.
const OWN: &str = "backtrail/";

/// Answers the requests of one session.
pub struct Server {
    session: ClientSession,
}

impl Server {
    /// Returns a server of a session.
    #[must_use]
    pub fn new(session: ClientSession) -> Self {
        Self { session }
    }

    /// Returns whether the session ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.ended
    }

    /// Handles a request, and answers it whatever happens.
    pub fn work(&mut self, request: &Request, cancel: &Cancel) {
        self.answer(request, cancel, dispatch);
        self.session.pending.remove(cancel);
    }

    fn answer(
        &mut self,
        request: &Request,
        cancel: &Cancel,
        dispatch: impl Fn(&mut ClientSession, &Request, &Watch<'_>) -> Result<serde_json::Value>,
    ) {
        let session = &mut self.session;
        session.pending.begins(cancel);
        if cancel.load(Ordering::Relaxed) && !matches!(&*request.command, "disconnect" | "terminate") {
            session.outbox.fail(request, "cancelled", None);
            return;
        }
        let wanted = session.features.supports_progress_reporting == Some(true);
        let reporter = ProgressReporter::new(
            session.outbox.clone(),
            Arc::clone(&session.pending),
            Arc::clone(cancel),
            wanted,
        );
        let was_partial = session.is_partial();
        let answer = reporter.watch(|watch| guarded(|| dispatch(session, request, watch)));
        match answer {
            Ok(body) => session.outbox.respond(request, Ok(body)),
            Err(failure) if failure.is_cancelled() => session.outbox.fail(request, "cancelled", None),
            Err(failure) => {
                let shown = Message {
                    format: failure.to_string(),
                    id: 1,
                    // A client shows the errors of its own requests itself.
                    show_user: Some(failure.is_shown() && !request.command.starts_with(OWN)),
                    ..Message::default()
                };
                let shown = serde_json::to_value(shown).ok();
                session.outbox.fail(request, &failure.to_string(), shown);
            }
        }
        for action in std::mem::take(&mut session.follow_ups) {
            if let Err(failure) = reporter.watch(|watch| guarded(|| perform(session, action, watch))) {
                stop_events::report_failure(session, &failure);
            }
        }
        drop(reporter);
        if was_partial && !session.is_partial() {
            report_longer_history(session);
        }
    }

    /// Adopts the history that was decoded in the background, if that is complete.
    pub fn idle(&mut self) {
        let ready = |debuggee: &&mut Debuggee| debuggee.navigator.session().is_decoded_ahead();
        let Some(debuggee) = self.session.debuggee.as_mut().filter(ready) else {
            return;
        };
        if debuggee.navigator.decode_earlier(&Watch::none()).is_ok() {
            report_longer_history(&mut self.session);
        }
    }
}

/// Performs an action that follows a response.
fn perform(session: &mut ClientSession, action: FollowUp, watch: &Watch<'_>) -> Result<()> {
    match action {
        FollowUp::Initialized => session.outbox.event("initialized", ()),
        FollowUp::Move(requested) => stepping::make_move(session, requested, watch)?,
        FollowUp::Continued => stop_events::report_continued(session)?,
        FollowUp::Stopped(cause) => stop_events::report_stop(session, cause, watch)?,
        FollowUp::Terminated => session.outbox.event("terminated", ()),
        FollowUp::End => session.ended = true,
    }
    Ok(())
}

/// Reports that more history is decoded. Stacks can be deeper than before; all numbers stay valid.
fn report_longer_history(session: &mut ClientSession) {
    if !session.configured {
        return;
    }
    if session.features.supports_invalidated_event == Some(true) {
        session.outbox.event(
            "invalidated",
            InvalidatedEventBody {
                areas: Some(vec![InvalidatedAreas::Stacks]),
                ..InvalidatedEventBody::default()
            },
        );
    }
    stop_events::report_place(session, &Watch::none());
}

/// Turns a panic of `act` into a failure of the request, so that the session continues.
fn guarded<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = catch_unwind(AssertUnwindSafe(act));
    done.unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Failure::Cannot(format!(
            "internal error in Backtrail ({}); the session continues",
            what.unwrap_or_default()
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::outbox::{Outgoings, outbox};
    use serde_json::{Value, json};

    fn server() -> (Server, Outgoings) {
        let (outbox, outgoings) = outbox();
        let session = ClientSession::new(outbox, Arc::default(), Access::default());
        (Server::new(session), outgoings)
    }

    fn request(seq: i64, command: &str) -> Request {
        Request {
            seq,
            command: command.to_owned(),
            arguments: json!({}),
        }
    }

    #[test]
    fn a_panic_fails_the_request_and_the_session_continues() {
        let (mut server, mut outgoings) = server();
        let cancel = server.session.pending.add(7);
        server.answer(&request(7, "threads"), &cancel, |_, _, _| panic!("no such index"));
        let sent = outgoings.drain();
        assert_eq!(sent.len(), 1);
        assert_eq!(
            (&sent[0]["success"], &sent[0]["request_seq"]),
            (&json!(false), &json!(7))
        );
        assert!(sent[0]["message"].as_str().unwrap().contains("no such index"));
        let cancel = server.session.pending.add(8);
        server.work(&request(8, "initialize"), &cancel);
        assert_eq!(outgoings.drain()[0]["success"], true);
    }

    #[test]
    fn a_cancelled_request_is_not_started() {
        let (mut server, mut outgoings) = server();
        let cancel = server.session.pending.add(1);
        assert!(server.session.pending.cancel_request(1));
        server.answer(&request(1, "threads"), &cancel, |_, _, _| panic!("it is started"));
        let sent = outgoings.drain();
        assert_eq!(
            (&sent[0]["success"], &sent[0]["message"]),
            (&json!(false), &json!("cancelled"))
        );
    }

    #[test]
    fn every_request_is_answered_before_a_trace_is_open() {
        let (mut server, mut outgoings) = server();
        let commands = [
            "threads",
            "next",
            "stackTrace",
            "backtrail/calls",
            "evaluate",
            "nonsense",
        ];
        for (seq, command) in (1..).zip(commands) {
            let cancel = server.session.pending.add(seq);
            server.work(&request(seq, command), &cancel);
        }
        let sent = outgoings.drain();
        let answered: Vec<&Value> = sent.iter().map(|sent| &sent["command"]).collect();
        assert_eq!(answered, commands.map(Value::from).iter().collect::<Vec<_>>());
        assert!(sent.iter().all(|sent| sent["type"] == "response"));
    }
}
