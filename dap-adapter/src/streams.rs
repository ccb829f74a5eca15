//! Sessions over streams: a task reads and answers what cannot wait, one thread works, a task
//! writes.
//!
//! The requests that cannot wait are those that end running work: `cancel` and `pause`.
//! `disconnect` and `terminate` end it too, and then wait for their turn.

use crate::access::Access;
use crate::codec::{Decoder, Frame};
use crate::outbox::{Outbox, outbox};
use crate::pending::{Cancel, Pending};
use crate::protocol::message::{Incoming, Request};
use crate::protocol::types::{CancelArguments, OutputEventBody, OutputEventCategory};
use crate::server::Server;
use crate::session::ClientSession;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// The interval between two checks of background decoding.
const IDLE: Duration = Duration::from_millis(100);
/// Debug information nests deeply.
const STACK: usize = 64 << 20;

/// A request and its cancellation flag.
type Job = (Request, Cancel);

/// Speaks over standard input and output until the client disconnects or its end is closed.
///
/// # Errors
/// When the streams fail.
pub fn standard(access: Access) -> io::Result<()> {
    let runtime = runtime()?;
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let served = runtime.block_on(serve(input, output, Decoder::lenient(), access));
    // Reading standard input cannot be broken off.
    runtime.shutdown_background();
    served
}

/// Returns the runtime of the session tasks, on this thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Speaks over a pair of streams until the client disconnects or closes its end.
///
/// # Errors
/// When the streams fail, no thread can be had, or the client sends what is no message where
/// `decoder` takes nothing else.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    decoder: Decoder,
    access: Access,
) -> io::Result<()> {
    let (outbox, outgoings) = outbox();
    let pending = Arc::new(Pending::default());
    let (jobs, queue) = channel();
    let (over, ended) = oneshot::channel();
    let client = (outbox.clone(), Arc::clone(&pending));
    std::thread::Builder::new()
        .name("requests".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let (outbox, pending) = client;
            work(
                &mut Server::new(ClientSession::new(outbox, pending, access)),
                &queue,
            );
            let _ = over.send(());
        })?;
    let writer = tokio::spawn(outgoings.write_to(output));
    let reader = Reader {
        outbox,
        pending: Arc::clone(&pending),
        jobs,
    };
    tokio::pin!(ended);
    tokio::select! {
        read = reader.read(input, decoder) => {
            // The client has gone without a word, or is none.
            pending.cancel_all();
            let _ = ended.await;
            if read.is_err() {
                // A client that does not read the rest must not keep the session.
                writer.abort();
                return read;
            }
        }
        _ = &mut ended => {}
    }
    writer.await?
}

/// Works at requests until there are no more, or the client disconnects.
fn work(server: &mut Server, queue: &Receiver<Job>) {
    while !server.has_ended() {
        match queue.recv_timeout(IDLE) {
            Ok((request, cancel)) => server.work(&request, &cancel),
            Err(RecvTimeoutError::Timeout) => server.idle(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

struct Reader {
    outbox: Outbox,
    pending: Arc<Pending>,
    jobs: Sender<Job>,
}

impl Reader {
    /// Reads to the end.
    async fn read(self, mut input: impl AsyncRead + Unpin, mut decoder: Decoder) -> io::Result<()> {
        let mut piece = vec![0; 1 << 16];
        loop {
            let read = input.read(&mut piece).await?;
            if read == 0 {
                return Ok(());
            }
            decoder.feed(piece.get(..read).unwrap_or_default());
            while let Some(frame) = decoder.next_frame() {
                match frame {
                    Frame::Message(message) => self.take(Incoming::read(message)),
                    Frame::Bad(why) => self.complain(&why),
                    Frame::Lost(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
                }
            }
        }
    }

    fn take(&self, incoming: Incoming) {
        match incoming {
            Incoming::Request(request) => self.take_request(request),
            Incoming::Other => {}
            Incoming::Bad(why, None) => self.complain(&why),
            Incoming::Bad(why, Some(seq)) => {
                let request = Request {
                    seq,
                    command: String::new(),
                    arguments: serde_json::Value::Null,
                };
                self.outbox.fail(&request, &why, None);
            }
        }
    }

    fn take_request(&self, request: Request) {
        match &*request.command {
            "cancel" => return self.cancel(&request),
            "pause" => {
                self.pending.cancel_running();
                return self.outbox.respond(&request, Ok(serde_json::Value::Null));
            }
            "disconnect" | "terminate" => self.pending.cancel_all(),
            // The restart makes the result of the running request obsolete.
            "restart" => {
                self.pending.cancel_running();
            }
            _ => {}
        }
        let cancel = self.pending.add(request.seq);
        // If the receiver is gone, the session is over.
        let _ = self.jobs.send((request, cancel));
    }

    fn cancel(&self, request: &Request) {
        let arguments: CancelArguments =
            serde_json::from_value(request.arguments.clone()).unwrap_or_default();
        // A finished request cannot be canceled, which is not an error.
        if let Some(seq) = arguments.request_id {
            self.pending.cancel_request(seq);
        }
        if let Some(id) = &arguments.progress_id {
            self.pending.cancel_progress(id);
        }
        self.outbox.respond(request, Ok(serde_json::Value::Null));
    }

    fn complain(&self, why: &str) {
        self.outbox.event(
            "output",
            OutputEventBody {
                category: Some(OutputEventCategory::Stderr),
                output: format!("{why}\n"),
                ..OutputEventBody::default()
            },
        );
    }
}
