//! The messages to the client, numbered in the order of sending.

use crate::codec;
use crate::protocol::message::{Event, Outgoing, Request, Response};
use crate::text;
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Puts messages in; any thread may.
#[derive(Clone, Debug)]
pub struct Outbox(UnboundedSender<Outgoing>);

/// The other end of it.
pub struct Outgoings(UnboundedReceiver<Outgoing>);

/// An outbox, and what takes the messages out of it.
#[must_use]
pub fn outbox() -> (Outbox, Outgoings) {
    let (sender, receiver) = unbounded_channel();
    (Outbox(sender), Outgoings(receiver))
}

impl Outbox {
    /// Answers a request.
    pub fn respond(&self, request: &Request, answer: Result<Value, String>) {
        let (mut body, message) = match answer {
            Ok(body) => (Some(body).filter(|body| !body.is_null()), None),
            Err(message) => (None, Some(text::sentence(&message))),
        };
        if let Some(body) = &mut body {
            text::answer(&request.command, body);
        }
        self.put(Outgoing::Response(Response {
            request_seq: request.seq,
            success: message.is_none(),
            command: request.command.clone(),
            body,
            message,
        }));
    }

    /// Fails a request with what the client may show.
    pub fn fail(&self, request: &Request, message: &str, shown: Option<Value>) {
        // The protocol has a body in every failure.
        let mut body = shown.map_or_else(|| json!({}), |error| json!({ "error": error }));
        text::answer(&request.command, &mut body);
        self.put(Outgoing::Response(Response {
            request_seq: request.seq,
            success: false,
            command: request.command.clone(),
            message: Some(text::sentence(message)),
            body: Some(body),
        }));
    }

    /// Sends an event.
    pub fn event(&self, event: &str, body: impl Serialize) {
        let mut body = serde_json::to_value(body).ok().filter(|body| !body.is_null());
        if let Some(body) = &mut body {
            text::event(body);
        }
        self.put(Outgoing::Event(Event {
            event: event.to_owned(),
            body,
        }));
    }

    fn put(&self, message: Outgoing) {
        // A client that is gone hears nothing.
        let _ = self.0.send(message);
    }
}

#[derive(Serialize)]
struct NumberedMessage<'a> {
    seq: u64,
    #[serde(flatten)]
    message: &'a Outgoing,
}

impl Outgoings {
    /// Writes all messages until the last outbox is gone.
    ///
    /// # Errors
    /// When the stream cannot be written.
    pub async fn write_to(mut self, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut seq = 0;
        while let Some(message) = self.0.recv().await {
            seq += 1;
            let message = NumberedMessage {
                seq,
                message: &message,
            };
            output.write_all(&codec::encode(&message)?).await?;
            output.flush().await?;
        }
        Ok(())
    }

    /// The messages that are there now, for tests.
    #[cfg(test)]
    pub fn drain(&mut self) -> Vec<Value> {
        let messages = std::iter::from_fn(|| self.0.try_recv().ok());
        messages
            .filter_map(|message| serde_json::to_value(message).ok())
            .collect()
    }
}
