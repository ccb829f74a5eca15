//! The compressed value log of a thread, and the thread that compresses.

use crate::error::{Error, Result};
use backtrail_bundle::value_log;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

/// The most segments that wait to be compressed. Then the program waits.
const MOST_WAITING: usize = 8;

/// The segments of a thread, numbered.
#[derive(Debug)]
pub(crate) struct SegmentLog {
    kept: KeptSegments,
    number: u64,
    /// Segments that are being compressed, the oldest first.
    waiting: VecDeque<Receiver<Option<Vec<u8>>>>,
}

impl SegmentLog {
    /// Builds a log that keeps about `limit` bytes, or everything.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            kept: KeptSegments {
                limit: limit.unwrap_or(usize::MAX),
                ..KeptSegments::default()
            },
            number: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Returns the number of the next segment.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Adds a segment, and compresses it at once.
    pub(crate) fn push(&mut self, content: &[u8]) {
        // A segment that cannot be kept is missing.
        if let Ok(segment) = value_log::encode(self.number, content) {
            self.kept.push(segment);
        }
        self.number += 1;
    }

    /// Adds a segment, which another thread compresses.
    pub(crate) fn push_to(&mut self, compressor: &Compressor, content: Vec<u8>) {
        self.waiting.push_back(compressor.compress(self.number, content));
        self.number += 1;
        while let Some(first) = self.waiting.front()
            && let Ok(segment) = first.try_recv()
        {
            self.waiting.pop_front();
            segment.into_iter().for_each(|segment| self.kept.push(segment));
        }
    }

    /// Returns the file of the log.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        for waiting in self.waiting {
            let segment = waiting.recv().ok().flatten();
            segment.into_iter().for_each(|segment| self.kept.push(segment));
        }
        let mut file = value_log::beginning();
        for segment in self.kept.segments {
            file.extend(segment);
        }
        file
    }
}

/// Compressed segments, the newest of them.
#[derive(Debug, Default)]
struct KeptSegments {
    segments: VecDeque<Vec<u8>>,
    size: usize,
    limit: usize,
}

impl KeptSegments {
    fn push(&mut self, segment: Vec<u8>) {
        self.size += segment.len();
        self.segments.push_back(segment);
        while self.size > self.limit && self.segments.len() > 1 {
            self.size -= self.segments.pop_front().map_or(0, |segment| segment.len());
        }
    }
}

/// A thread that compresses segments.
#[derive(Debug)]
pub(crate) struct Compressor {
    jobs: Option<SyncSender<CompressJob>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct CompressJob {
    number: u64,
    content: Vec<u8>,
    reply: SyncSender<Option<Vec<u8>>>,
}

impl Compressor {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self> {
        let (jobs, inbox) = mpsc::sync_channel::<CompressJob>(MOST_WAITING);
        let thread = std::thread::Builder::new()
            .name("values".to_owned())
            .spawn(move || {
                for job in inbox {
                    // The thread of the program may have ended.
                    let _ = job.reply.send(value_log::encode(job.number, &job.content).ok());
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Compresses a segment. Waits while too many others wait.
    fn compress(&self, number: u64, content: Vec<u8>) -> Receiver<Option<Vec<u8>>> {
        let (reply, result) = mpsc::sync_channel(1);
        if let Some(jobs) = &self.jobs {
            // The thread receives until this value is dropped.
            let _ = jobs.send(CompressJob {
                number,
                content,
                reply,
            });
        }
        result
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::value_log::ValueLog;

    #[test]
    fn the_oldest_segments_go_first() {
        let mut kept = KeptSegments {
            limit: 10,
            ..KeptSegments::default()
        };
        for number in 1..6_u8 {
            kept.push(vec![number; 4]);
        }
        assert_eq!(kept.segments, [vec![4; 4], vec![5; 4]]);
        kept.push(vec![9; 40]);
        assert_eq!(kept.segments, [vec![9; 40]], "the newest is always kept");
    }

    #[test]
    fn compressed_segments_keep_their_order() {
        let compressor = Compressor::start().unwrap();
        let mut log = SegmentLog::new(None);
        for number in 0..40_u8 {
            log.push_to(&compressor, vec![number; 1000]);
        }
        let read = ValueLog::parse(log.finish().into(), "values").unwrap();
        let contents: Vec<_> = read
            .segments()
            .iter()
            .map(|segment| (segment.number, read.content(segment).unwrap()))
            .collect();
        let expected: Vec<_> = (0..40_u8)
            .map(|number| (u64::from(number), vec![number; 1000]))
            .collect();
        assert_eq!(contents, expected);
    }
}
