//! The threads that turn logs into packets.
//!
//! One of them, the desk, looks at each log so often that a look at the clock tells when what it finds
//! new was written (system calls tell their times themselves), and keeps things in order. The others write
//! packets, a chunk of a log at a time.

mod burst;
mod passage;
mod store;
mod stream;
mod writer;

use super::region::Region;
use crate::clock;
use crate::error::{Error, Result};
use crate::ptrace::CpuSet;
use crate::recorded::Packets;
use backtrail_bundle::versions::Boundary;
use backtrail_pt::{Avma, EncoderOptions, Tsc};
use passage::{Passed, Workers};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub(crate) use store::Keep;
use stream::{Stream, Then};

/// How often logs are looked at.
const PERIOD: Duration = Duration::from_micros(250);

/// Names a stream.
pub(super) type StreamId = u64;

/// What came of a stream.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) packets: Packets,
    pub(crate) dropped: u64,
    /// Bytes written, those dropped included.
    pub(crate) bytes: u64,
    pub(crate) gaps: u64,
    /// Where changes of code lie in the packets kept, and their numbers.
    pub(crate) boundaries: Vec<Boundary>,
    pub(crate) failure: Option<std::io::Error>,
}

/// What the desk is told, in order.
enum Message {
    Begin {
        id: StreamId,
        region: Arc<Region>,
        keep: Keep,
        time: Tsc,
    },
    /// The chunk is written up to `end`.
    Full { id: StreamId, end: u64, then: Then },
    /// The log ends here.
    End {
        id: StreamId,
        end: u64,
        reply: Sender<Finished>,
    },
    /// A chunk has become packets.
    Passed(Box<Passed>),
    /// There will be no more.
    Close,
}

/// The recorder's side.
#[derive(Debug)]
pub(crate) struct Scribe {
    messages: Sender<Message>,
    desk: Option<JoinHandle<()>>,
    next: StreamId,
    bytes: Arc<AtomicU64>,
}

impl Scribe {
    /// Starts the threads; those that write packets run where `free` says, if it does.
    pub(crate) fn start(options: EncoderOptions, free: Option<CpuSet>) -> Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let bytes = Arc::new(AtomicU64::new(0));
        let workers = Workers::start(&messages, &bytes, free)?;
        let desk = std::thread::Builder::new()
            .name("desk".to_owned())
            .spawn(move || {
                let desk = Desk {
                    streams: HashMap::new(),
                    options,
                    workers,
                };
                desk.work(&inbox);
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            messages,
            desk: Some(desk),
            next: 0,
            bytes,
        })
    }

    /// Bytes of packets written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Begins a stream out of a region's log.
    pub(super) fn begin(&mut self, region: Arc<Region>, keep: Keep) -> StreamId {
        let id = self.next;
        self.next += 1;
        let time = clock::now();
        self.tell(Message::Begin {
            id,
            region,
            keep,
            time,
        });
        id
    }

    /// A chunk is written up to `end`, and the program stands at `told` in user code, if that is known.
    pub(super) fn full(&self, id: StreamId, end: u64, told: Option<u64>) {
        let then = told.map_or(Then::Unknown, |ip| Then::At(Avma(ip), clock::now()));
        self.tell(Message::Full { id, end, then });
    }

    /// Ends a stream; its packets come once all of it is written.
    pub(super) fn end(&self, id: StreamId, end: u64) -> Receiver<Finished> {
        let (reply, finished) = mpsc::channel();
        self.tell(Message::End { id, end, reply });
        finished
    }

    fn tell(&self, message: Message) {
        // It listens as long as we live.
        let _ = self.messages.send(message);
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.tell(Message::Close);
        if let Some(desk) = self.desk.take() {
            let _ = desk.join();
        }
    }
}

/// The desk's side.
struct Desk {
    streams: HashMap<StreamId, Stream>,
    options: EncoderOptions,
    workers: Workers,
}

impl Desk {
    fn work(mut self, inbox: &Receiver<Message>) {
        let mut looked = Instant::now();
        loop {
            match inbox.recv_timeout(PERIOD) {
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if looked.elapsed() >= PERIOD {
                self.streams.values_mut().for_each(Stream::look);
                looked = Instant::now();
            }
        }
    }

    fn take(&mut self, message: Message) {
        let (id, next) = match message {
            Message::Begin {
                id,
                region,
                keep,
                time,
            } => {
                let stream = Stream::new(id, region, keep, self.options, time);
                self.streams.insert(id, stream);
                return;
            }
            Message::Full { id, end, then } => (id, self.with(id, |stream| stream.full(end, then))),
            Message::End { id, end, reply } => (id, self.with(id, |stream| stream.end(end, reply))),
            Message::Passed(passed) => {
                let id = passed.stream;
                (id, self.with(id, |stream| stream.passed(*passed)))
            }
            Message::Close => return,
        };
        if let Some(passage) = next {
            self.workers.give(passage);
        }
        if self.streams.get(&id).is_some_and(Stream::is_done)
            && let Some(stream) = self.streams.remove(&id)
        {
            stream.finish();
        }
    }

    fn with<T>(&mut self, id: StreamId, work: impl FnOnce(&mut Stream) -> Option<T>) -> Option<T> {
        self.streams.get_mut(&id).and_then(work)
    }
}
