//! The log of a thread as the coordinator sees it: chunks to encode, and encoded packets.

use super::job::{EncodeJob, EncodedJob, JobOutcome, StreamId, TimeMark};
use super::log_encoder::{EncodedPackets, LogEncoder};
use super::packet_store::{PacketStorage, PacketStore};
use crate::clock;
use crate::recorded::Packets;
use crate::ring::kept_boundaries;
use crate::translate::layout::{CHUNK, CHUNK_COUNT};
use crate::translate::region::Region;
use backtrail_bundle::versions::Boundary;
use backtrail_pt::{Avma, EncoderOptions, Tsc};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The state of the program at the end of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChunkEnd {
    /// The program is in user code at this address.
    InUserCode(Avma, Tsc),
    /// The address is unknown, or the program is not in user code.
    Unknown,
    /// The log ends.
    EndOfLog,
}

/// The packets of an ended stream.
#[derive(Debug)]
pub(crate) struct EncodedStream {
    pub(crate) packets: Packets,
    pub(crate) dropped: u64,
    /// Bytes encoded, including dropped ones.
    pub(crate) bytes: u64,
    pub(crate) gaps: u64,
    /// The positions of code changes in the stored packets, with their versions.
    pub(crate) boundaries: Vec<Boundary>,
    pub(crate) failure: Option<std::io::Error>,
}

/// A full chunk that waits for the encoder of the previous chunk.
struct PendingChunk {
    number: u64,
    chunk: u64,
    end: u64,
    marks: Vec<TimeMark>,
    last: bool,
}

/// A log and its packets.
pub(super) struct LogStream {
    id: StreamId,
    region: Arc<Region>,
    options: EncoderOptions,
    segment: usize,
    store: PacketStore,
    /// The chunk that is being filled.
    chunk: u64,
    marks: Vec<TimeMark>,
    /// Will encode the chunk that is being filled, if it is known already.
    encoder: Option<LogEncoder>,
    /// The number of chunks so far, and of chunks whose packets are stored.
    number: u64,
    stored: u64,
    pending: VecDeque<PendingChunk>,
    out_of_order: BTreeMap<u64, Option<EncodedPackets>>,
    bytes: u64,
    gaps: u64,
    boundaries: Vec<Boundary>,
    reply: Option<Sender<EncodedStream>>,
}

impl LogStream {
    pub(super) fn new(
        id: StreamId,
        region: Arc<Region>,
        storage: PacketStorage,
        options: EncoderOptions,
        time: Tsc,
    ) -> Self {
        let segment = storage.segment();
        Self {
            id,
            region,
            options,
            segment,
            store: PacketStore::new(storage),
            chunk: 0,
            marks: Vec::new(),
            encoder: Some(LogEncoder::at_start(options, segment, time)),
            number: 0,
            stored: 0,
            pending: VecDeque::new(),
            out_of_order: BTreeMap::new(),
            bytes: 0,
            gaps: 0,
            boundaries: Vec::new(),
            reply: None,
        }
    }

    /// Records the current position and time of the log.
    pub(super) fn sample_time(&mut self) {
        let time = clock::now();
        let offset = self.region.pointer().wrapping_sub(self.region.chunk(self.chunk));
        // If the position is outside, the chunk is full and its message is on the way.
        let last_offset = self.marks.last().map_or(0, |mark| mark.offset);
        if offset <= CHUNK && (offset > last_offset || self.marks.is_empty()) {
            self.marks.push(TimeMark { offset, time });
        } else if offset <= CHUNK
            && let Some(mark) = self.marks.last_mut()
        {
            // Nothing was logged in the meantime, so the next event is later than this time.
            mark.time = time;
        }
    }

    /// Handles a chunk that is complete up to `end`. Returns the job that can run now, if any.
    pub(super) fn chunk_full(&mut self, end: u64, chunk_end: ChunkEnd) -> Option<EncodeJob> {
        let pending = PendingChunk {
            number: self.number,
            chunk: self.chunk,
            end,
            marks: std::mem::take(&mut self.marks),
            last: !matches!(chunk_end, ChunkEnd::Unknown),
        };
        let encoder = self.encoder.take();
        self.number += 1;
        self.chunk = (self.chunk + 1) % CHUNK_COUNT;
        self.encoder = match chunk_end {
            ChunkEnd::InUserCode(ip, time) => {
                Some(LogEncoder::at_user_code(self.options, self.segment, time, ip))
            }
            ChunkEnd::Unknown | ChunkEnd::EndOfLog => None,
        };
        match encoder {
            Some(encoder) => Some(self.job(pending, encoder)),
            None => {
                self.pending.push_back(pending);
                None
            }
        }
    }

    fn job(&self, pending: PendingChunk, encoder: LogEncoder) -> EncodeJob {
        let PendingChunk {
            number,
            chunk,
            end,
            marks,
            last,
        } = pending;
        EncodeJob {
            stream: self.id,
            number,
            region: Arc::clone(&self.region),
            chunk,
            end,
            marks,
            encoder,
            last,
        }
    }

    /// Handles the end of the log at `end` of the current chunk. The packets are sent to `reply`
    /// after all jobs are done.
    pub(super) fn end(&mut self, end: u64, reply: Sender<EncodedStream>) -> Option<EncodeJob> {
        self.reply = Some(reply);
        self.chunk_full(end, ChunkEnd::EndOfLog)
    }

    /// Handles a finished job. Returns the job that can run now, if any.
    pub(super) fn job_done(&mut self, done: EncodedJob) -> Option<EncodeJob> {
        let mut next = None;
        let written = match done.outcome {
            JobOutcome::Complete(written) => Some(written),
            JobOutcome::Continues(encoder) => {
                // The next chunk continues with this encoder: it is pending, or still being filled.
                if self
                    .pending
                    .front()
                    .is_some_and(|pending| pending.number == done.number + 1)
                {
                    let pending = self.pending.pop_front();
                    next = pending.map(|pending| self.job(pending, *encoder));
                } else {
                    self.encoder = Some(*encoder);
                }
                None
            }
        };
        self.out_of_order.insert(done.number, written);
        while let Some(written) = self.out_of_order.remove(&self.stored) {
            self.stored += 1;
            if let Some(written) = written {
                self.store(written);
            }
        }
        next
    }

    fn store(&mut self, written: EncodedPackets) {
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

    /// Returns whether all chunks of an ended log are stored.
    pub(super) fn is_done(&self) -> bool {
        self.reply.is_some() && self.stored == self.number
    }

    /// Sends the packets to the receiver.
    pub(super) fn finish(mut self) {
        let Some(reply) = self.reply.take() else { return };
        let (packets, dropped, failure) = self.store.finish();
        // The receiver may have been dropped.
        let _ = reply.send(EncodedStream {
            packets,
            dropped,
            bytes: self.bytes,
            gaps: self.gaps,
            boundaries: kept_boundaries(self.boundaries, dropped),
            failure,
        });
    }
}
