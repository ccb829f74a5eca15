//! A thread's log, as the scribe sees it: what is still to be written, and what has been.

use super::passage::{Mark, Outcome, Passage, Passed};
use super::store::{Keep, Store};
use super::writer::{Writer, Written};
use super::{Finished, StreamId};
use crate::clock;
use crate::translate::layout::{CHUNK, CHUNK_COUNT};
use crate::translate::region::Region;
use backtrail_bundle::versions::Boundary;
use backtrail_pt::{Avma, EncoderOptions, Tsc};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// How a chunk goes on in the next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// The program stands here, in user code.
    At(Avma, Tsc),
    /// That is not known, or it is not in user code.
    Unknown,
    /// The log ends.
    End,
}

/// A chunk that is full, but waits for the writer of the one before.
struct Waiting {
    number: u64,
    chunk: u64,
    end: u64,
    marks: Vec<Mark>,
    last: bool,
}

/// A log and its packets.
pub(super) struct Stream {
    id: StreamId,
    region: Arc<Region>,
    options: EncoderOptions,
    segment: usize,
    store: Store,
    /// The chunk that is being filled.
    chunk: u64,
    marks: Vec<Mark>,
    /// Writes the chunk that is being filled, if that is known already.
    writer: Option<Writer>,
    /// Chunks so far, and those whose packets are stored.
    number: u64,
    stored: u64,
    waiting: VecDeque<Waiting>,
    early: BTreeMap<u64, Option<Written>>,
    bytes: u64,
    gaps: u64,
    boundaries: Vec<Boundary>,
    reply: Option<Sender<Finished>>,
}

impl Stream {
    pub(super) fn new(
        id: StreamId,
        region: Arc<Region>,
        keep: Keep,
        options: EncoderOptions,
        time: Tsc,
    ) -> Self {
        let segment = keep.segment();
        Self {
            id,
            region,
            options,
            segment,
            store: Store::new(keep),
            chunk: 0,
            marks: Vec::new(),
            writer: Some(Writer::begin(options, segment, time)),
            number: 0,
            stored: 0,
            waiting: VecDeque::new(),
            early: BTreeMap::new(),
            bytes: 0,
            gaps: 0,
            boundaries: Vec::new(),
            reply: None,
        }
    }

    /// Notes how far the log has come by now.
    pub(super) fn look(&mut self) {
        let time = clock::now();
        let offset = self.region.pointer().wrapping_sub(self.region.chunk(self.chunk));
        // Elsewhere: the chunk is full, and an order on its way.
        let news = self.marks.last().map_or(0, |mark| mark.offset);
        if offset <= CHUNK && (offset > news || self.marks.is_empty()) {
            self.marks.push(Mark { offset, time });
        } else if offset <= CHUNK
            && let Some(mark) = self.marks.last_mut()
        {
            // Nothing was written meanwhile: what comes is younger still.
            mark.time = time;
        }
    }

    /// The chunk is written up to `end`; gives what can be done now.
    pub(super) fn full(&mut self, end: u64, then: Then) -> Option<Passage> {
        let waiting = Waiting {
            number: self.number,
            chunk: self.chunk,
            end,
            marks: std::mem::take(&mut self.marks),
            last: !matches!(then, Then::Unknown),
        };
        let writer = self.writer.take();
        self.number += 1;
        self.chunk = (self.chunk + 1) % CHUNK_COUNT;
        self.writer = match then {
            Then::At(ip, time) => Some(Writer::resume(self.options, self.segment, time, ip)),
            Then::Unknown | Then::End => None,
        };
        match writer {
            Some(writer) => Some(self.passage(waiting, writer)),
            None => {
                self.waiting.push_back(waiting);
                None
            }
        }
    }

    fn passage(&self, waiting: Waiting, writer: Writer) -> Passage {
        let Waiting {
            number,
            chunk,
            end,
            marks,
            last,
        } = waiting;
        Passage {
            stream: self.id,
            number,
            region: Arc::clone(&self.region),
            chunk,
            end,
            marks,
            writer,
            last,
        }
    }

    /// The log ends at `end` of its chunk; whoever asks is told once all is written.
    pub(super) fn end(&mut self, end: u64, reply: Sender<Finished>) -> Option<Passage> {
        self.reply = Some(reply);
        self.full(end, Then::End)
    }

    /// Takes what was written; gives what can be done now.
    pub(super) fn passed(&mut self, passed: Passed) -> Option<Passage> {
        let mut next = None;
        let written = match passed.outcome {
            Outcome::Written(written) => Some(written),
            Outcome::Open(writer) => {
                // The next chunk goes on with it: it waits for that, or is still being filled.
                if self
                    .waiting
                    .front()
                    .is_some_and(|waiting| waiting.number == passed.number + 1)
                {
                    let waiting = self.waiting.pop_front();
                    next = waiting.map(|waiting| self.passage(waiting, writer));
                } else {
                    self.writer = Some(writer);
                }
                None
            }
        };
        self.early.insert(passed.number, written);
        while let Some(written) = self.early.remove(&self.stored) {
            self.stored += 1;
            if let Some(written) = written {
                self.store(written);
            }
        }
        next
    }

    fn store(&mut self, written: Written) {
        let base = self.bytes;
        self.gaps += written.gaps;
        self.boundaries
            .extend(written.boundaries.into_iter().map(|boundary| Boundary {
                offset: base + boundary.offset,
                ..boundary
            }));
        for packets in written.packets {
            self.bytes += packets.len() as u64;
            self.store.push(packets);
        }
    }

    /// All is written.
    pub(super) fn is_done(&self) -> bool {
        self.reply.is_some() && self.stored == self.number
    }

    /// Tells who asked.
    pub(super) fn finish(mut self) {
        let Some(reply) = self.reply.take() else { return };
        let (packets, dropped, failure) = self.store.finish();
        // Of those before what is kept, the last still holds at its beginning.
        let kept = self
            .boundaries
            .partition_point(|boundary| boundary.offset < dropped);
        let boundaries = self.boundaries.split_off(kept.saturating_sub(1));
        let boundaries = boundaries.into_iter().map(|boundary| Boundary {
            offset: boundary.offset.saturating_sub(dropped),
            ..boundary
        });
        // Nobody may be waiting any more.
        let _ = reply.send(Finished {
            packets,
            dropped,
            bytes: self.bytes,
            gaps: self.gaps,
            boundaries: boundaries.collect(),
            failure,
        });
    }
}
