//! The threads that encode logs as packets.
//!
//! The coordinator samples the position of each log at short intervals, which dates the events
//! between two samples. (System calls log their own times.) It also keeps the chunks in order. The
//! workers encode packets, one chunk of a log at a time.

mod branches;
mod job;
mod log_encoder;
mod log_stream;
mod packet_store;

use super::region::Region;
use crate::clock;
use crate::error::{Error, Result};
use crate::ptrace::CpuSet;
use crate::segment_log::Compressor;
use backtrail_pt::{Avma, EncoderOptions, Tsc};
pub(super) use job::StreamId;
use job::{EncodedJob, Workers};
use log_stream::{ChunkEnd, EncodedStream, LogStream};
pub(crate) use packet_store::PacketStorage;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which logs are sampled.
const SAMPLE_PERIOD: Duration = Duration::from_micros(250);

/// The messages to the coordinator, in order.
enum Message {
    Begin {
        id: StreamId,
        region: Arc<Region>,
        storage: PacketStorage,
        time: Tsc,
    },
    /// The chunk is complete up to `end`.
    ChunkFull {
        id: StreamId,
        end: u64,
        chunk_end: ChunkEnd,
    },
    /// The log ends here.
    End {
        id: StreamId,
        end: u64,
        reply: Sender<EncodedStream>,
    },
    /// A chunk has been encoded.
    JobDone(Box<EncodedJob>),
    /// No message follows.
    Close,
}

/// The recorder's handle of the encoder threads.
#[derive(Debug)]
pub(crate) struct EncoderPool {
    messages: Sender<Message>,
    coordinator: Option<JoinHandle<()>>,
    next: StreamId,
    bytes: Arc<AtomicU64>,
    /// The thread that compresses values, once there are some.
    compressor: OnceLock<Option<Compressor>>,
}

impl EncoderPool {
    /// Starts the threads. The workers run on `cpus`, if given.
    pub(crate) fn start(options: EncoderOptions, cpus: Option<CpuSet>) -> Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let bytes = Arc::new(AtomicU64::new(0));
        let done = messages.clone();
        let report = move |job| {
            // The coordinator may have ended.
            let _ = done.send(Message::JobDone(Box::new(job)));
        };
        let workers = Workers::start(report, &bytes, cpus)?;
        let coordinator = std::thread::Builder::new()
            .name("pt-coordinator".to_owned())
            .spawn(move || {
                let coordinator = Coordinator {
                    streams: HashMap::new(),
                    options,
                    workers,
                };
                coordinator.work(&inbox);
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            messages,
            coordinator: Some(coordinator),
            next: StreamId::default(),
            bytes,
            compressor: OnceLock::new(),
        })
    }

    /// Returns the number of packet bytes encoded so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the thread that compresses values. `None`: it cannot be started.
    pub(super) fn compressor(&self) -> Option<&Compressor> {
        self.compressor.get_or_init(|| Compressor::start().ok()).as_ref()
    }

    /// Begins a stream from the log of a region.
    pub(super) fn begin(&mut self, region: Arc<Region>, storage: PacketStorage) -> StreamId {
        let id = self.next;
        self.next.0 += 1;
        let time = clock::now();
        self.send(Message::Begin {
            id,
            region,
            storage,
            time,
        });
        id
    }

    /// Submits a chunk that is complete up to `end`. If the program is in user code then, `ip` is
    /// its address.
    pub(super) fn chunk_full(&self, id: StreamId, end: u64, ip: Option<u64>) {
        let chunk_end = ip.map_or(ChunkEnd::Unknown, |ip| {
            ChunkEnd::InUserCode(Avma(ip), clock::now())
        });
        self.send(Message::ChunkFull { id, end, chunk_end });
    }

    /// Ends a stream. Its packets are sent after all chunks have been encoded.
    pub(super) fn end(&self, id: StreamId, end: u64) -> Receiver<EncodedStream> {
        let (reply, finished) = mpsc::channel();
        self.send(Message::End { id, end, reply });
        finished
    }

    fn send(&self, message: Message) {
        // The coordinator receives until this value is dropped.
        let _ = self.messages.send(message);
    }
}

impl Drop for EncoderPool {
    fn drop(&mut self) {
        self.send(Message::Close);
        if let Some(coordinator) = self.coordinator.take() {
            let _ = coordinator.join();
        }
    }
}

/// The coordinator thread.
struct Coordinator {
    streams: HashMap<StreamId, LogStream>,
    options: EncoderOptions,
    workers: Workers,
}

impl Coordinator {
    fn work(mut self, inbox: &Receiver<Message>) {
        let mut sampled = Instant::now();
        loop {
            match inbox.recv_timeout(SAMPLE_PERIOD) {
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if sampled.elapsed() >= SAMPLE_PERIOD {
                self.streams.values_mut().for_each(LogStream::sample_time);
                sampled = Instant::now();
            }
        }
    }

    fn handle(&mut self, message: Message) {
        let (id, next) = match message {
            Message::Begin {
                id,
                region,
                storage,
                time,
            } => {
                let stream = LogStream::new(id, region, storage, self.options, time);
                self.streams.insert(id, stream);
                return;
            }
            Message::ChunkFull { id, end, chunk_end } => {
                (id, self.with(id, |stream| stream.chunk_full(end, chunk_end)))
            }
            Message::End { id, end, reply } => (id, self.with(id, |stream| stream.end(end, reply))),
            Message::JobDone(done) => {
                let id = done.stream;
                (id, self.with(id, |stream| stream.job_done(*done)))
            }
            Message::Close => return,
        };
        if let Some(job) = next {
            self.workers.submit(job);
        }
        if self.streams.get(&id).is_some_and(LogStream::is_done)
            && let Some(stream) = self.streams.remove(&id)
        {
            stream.finish();
        }
    }

    fn with<T>(&mut self, id: StreamId, work: impl FnOnce(&mut LogStream) -> Option<T>) -> Option<T> {
        self.streams.get_mut(&id).and_then(work)
    }
}
