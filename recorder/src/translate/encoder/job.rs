//! The jobs of the encoders, and the worker threads that run them.
//!
//! A job that begins with a PSB does not depend on the previous one. Several workers therefore
//! encode at once, and the coordinator puts the results in order.

use super::log_encoder::{EncodedPackets, LogEncoder};
use crate::error::{Error, Result};
use crate::ptrace::{self, CpuSet};
use crate::translate::region::Region;
use backtrail_pt::Tsc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The number of log bytes read at a time, which fit in the L1 cache.
const READ_SIZE: u64 = 16 << 10;

/// Identifies a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::translate) struct StreamId(pub(super) u64);

/// The position of a log at a known time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeMark {
    /// Bytes from this offset on were logged later.
    pub(super) offset: u64,
    pub(super) time: Tsc,
}

/// A chunk to encode.
pub(super) struct EncodeJob {
    /// The stream of the job, and its number in the stream.
    pub(super) stream: StreamId,
    pub(super) number: u64,
    pub(super) region: Arc<Region>,
    pub(super) chunk: u64,
    /// The number of log bytes in the chunk.
    pub(super) end: u64,
    /// Ascending.
    pub(super) marks: Vec<TimeMark>,
    pub(super) encoder: LogEncoder,
    /// Whether the next job begins with a PSB, or does not exist.
    pub(super) last: bool,
}

/// An encoded chunk.
pub(super) struct EncodedJob {
    pub(super) stream: StreamId,
    pub(super) number: u64,
    pub(super) outcome: JobOutcome,
}

/// The result of a job.
pub(super) enum JobOutcome {
    Complete(EncodedPackets),
    /// The next job continues with this encoder.
    Continues(Box<LogEncoder>),
}

impl EncodeJob {
    fn run(mut self) -> EncodedJob {
        let mut at = 0;
        let mut buffer = Vec::new();
        for mark in std::mem::take(&mut self.marks) {
            self.encode_to(&mut at, mark.offset.min(self.end), &mut buffer);
            self.encoder.set_time(mark.time);
        }
        let end = self.end;
        self.encode_to(&mut at, end, &mut buffer);
        self.region.release_chunk(self.chunk);
        let outcome = if self.last {
            JobOutcome::Complete(self.encoder.finish())
        } else {
            JobOutcome::Continues(Box::new(self.encoder))
        };
        EncodedJob {
            stream: self.stream,
            number: self.number,
            outcome,
        }
    }

    fn encode_to(&mut self, at: &mut u64, end: u64, buffer: &mut Vec<u8>) {
        while *at < end {
            buffer.clear();
            let to = end.min(*at + READ_SIZE);
            self.region.read(self.chunk, *at, to, buffer);
            let done = self.encoder.encode_all(buffer);
            if done == 0 {
                break;
            }
            *at += done as u64;
        }
    }
}

/// The worker threads.
pub(super) struct Workers {
    jobs: Option<Sender<EncodeJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts the threads. They pass finished jobs to `report`, and count packet bytes in `bytes`.
    ///
    /// The threads run on `cpus`, if given.
    pub(super) fn start(
        report: impl Fn(EncodedJob) + Clone + Send + 'static,
        bytes: &Arc<AtomicU64>,
        cpus: Option<CpuSet>,
    ) -> Result<Self> {
        /// More workers than one program thread keeps busy are useless.
        const MAX_WORKERS: usize = 4;
        // One processor is left to the program.
        let count = std::thread::available_parallelism().map_or(1, |count| count.get() - 1);
        let count = count.clamp(1, MAX_WORKERS);
        let (jobs, inbox) = mpsc::channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = (0..count).map(|_| {
            let (inbox, report, bytes) = (Arc::clone(&inbox), report.clone(), Arc::clone(bytes));
            std::thread::Builder::new()
                .name("pt-encoder".to_owned())
                .spawn(move || {
                    if let Some(cpus) = &cpus {
                        ptrace::set_affinity(0, cpus);
                    }
                    work(&inbox, &report, &bytes);
                })
        });
        let threads = threads
            .collect::<std::io::Result<_>>()
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            jobs: Some(jobs),
            threads,
        })
    }

    pub(super) fn submit(&self, job: EncodeJob) {
        if let Some(jobs) = &self.jobs {
            // The workers receive until this value is dropped.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(inbox: &Mutex<Receiver<EncodeJob>>, report: &impl Fn(EncodedJob), bytes: &AtomicU64) {
    loop {
        let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let done = job.run();
        if let JobOutcome::Complete(written) = &done.outcome {
            let len: usize = written.packets.iter().map(Vec::len).sum();
            bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        report(done);
    }
}
