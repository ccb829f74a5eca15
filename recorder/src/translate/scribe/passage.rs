//! A chunk of a log on its way to packets, and the threads that do the work.
//!
//! A passage that begins with a PSB needs nothing of the one before: several threads write at once, and
//! what comes of it is put in order afterwards.

use super::Message;
use super::writer::{Writer, Written};
use crate::error::{Error, Result};
use crate::ptrace::{self, CpuSet};
use crate::translate::region::Region;
use backtrail_pt::Tsc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a log that are read together: they fit the nearest cache.
const PIECE: u64 = 16 << 10;

/// What the log held at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// From here on it is younger.
    pub(super) offset: u64,
    pub(super) time: Tsc,
}

/// A chunk to be written.
pub(super) struct Passage {
    /// The stream, and which of its passages this is.
    pub(super) stream: super::StreamId,
    pub(super) number: u64,
    pub(super) region: Arc<Region>,
    pub(super) chunk: u64,
    /// Bytes of the chunk that are log.
    pub(super) end: u64,
    /// Ascending.
    pub(super) marks: Vec<Mark>,
    pub(super) writer: Writer,
    /// The next passage begins with a PSB, or there is none.
    pub(super) last: bool,
}

/// A passage that was written.
pub(super) struct Passed {
    pub(super) stream: super::StreamId,
    pub(super) number: u64,
    pub(super) outcome: Outcome,
}

/// What came of it.
pub(super) enum Outcome {
    Written(Written),
    /// The next passage goes on with this.
    Open(Writer),
}

impl Passage {
    fn write(mut self) -> Passed {
        let mut at = 0;
        let mut buffer = Vec::new();
        for mark in std::mem::take(&mut self.marks) {
            self.write_to(&mut at, mark.offset.min(self.end), &mut buffer);
            self.writer.set_time(mark.time);
        }
        let end = self.end;
        self.write_to(&mut at, end, &mut buffer);
        self.region.give_back(self.chunk);
        let outcome = if self.last {
            Outcome::Written(self.writer.finish())
        } else {
            Outcome::Open(self.writer)
        };
        Passed {
            stream: self.stream,
            number: self.number,
            outcome,
        }
    }

    fn write_to(&mut self, at: &mut u64, end: u64, buffer: &mut Vec<u8>) {
        while *at < end {
            buffer.clear();
            let to = end.min(*at + PIECE);
            self.region.read(self.chunk, *at, to, buffer);
            let done = self.writer.write_all(buffer);
            if done == 0 {
                break;
            }
            *at += done as u64;
        }
    }
}

/// The threads.
pub(super) struct Workers {
    jobs: Option<Sender<Passage>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts them; they report to `done`, and count bytes of packets.
    ///
    /// They run where `free` says, if it does.
    pub(super) fn start(
        done: &Sender<Message>,
        bytes: &Arc<AtomicU64>,
        free: Option<CpuSet>,
    ) -> Result<Self> {
        /// More than a program's thread can keep busy.
        const MOST: usize = 4;
        // The program has one processor for itself.
        let count = std::thread::available_parallelism().map_or(1, |count| count.get() - 1);
        let count = count.clamp(1, MOST);
        let (jobs, inbox) = mpsc::channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = (0..count).map(|_| {
            let (inbox, done, bytes) = (Arc::clone(&inbox), done.clone(), Arc::clone(bytes));
            std::thread::Builder::new()
                .name("scribe".to_owned())
                .spawn(move || {
                    if let Some(free) = &free {
                        ptrace::set_affinity(0, free);
                    }
                    work(&inbox, &done, &bytes);
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

    pub(super) fn give(&self, passage: Passage) {
        if let Some(jobs) = &self.jobs {
            // They listen as long as we live.
            let _ = jobs.send(passage);
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

fn work(inbox: &Mutex<Receiver<Passage>>, done: &Sender<Message>, bytes: &AtomicU64) {
    loop {
        let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(passage) = next else { return };
        let passed = passage.write();
        if let Outcome::Written(written) = &passed.outcome {
            let len: usize = written.packets.iter().map(Vec::len).sum();
            bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        let _ = done.send(Message::Passed(Box::new(passed)));
    }
}
