//! The thread that turns logs into packets.
//!
//! It follows each log closely, so that a look at the clock tells when what it finds new was written;
//! system calls tell their times themselves.

use super::event::{self, Event};
use super::layout::{CHUNK, CHUNK_COUNT};
use super::region::Region;
use crate::clock;
use crate::error::{Error, Result};
use crate::recorded::Packets;
use crate::ring::Ring;
use backtrail_bundle::versions::Boundary;
use backtrail_pt::{Avma, Branches, Encoder, EncoderOptions, Tsc};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often logs are looked at.
const PERIOD: Duration = Duration::from_micros(250);

/// Bytes of a log that are read together.
const PIECE: u64 = 16 << 10;
/// Bytes of packets that are stored together.
const SEGMENT: usize = 64 << 10;
/// Segments that a ring has at least, for its oldest goes whole.
const RING_SEGMENTS: usize = 64;

/// Names a stream.
pub(super) type StreamId = u64;

/// Where the packets of a thread are kept.
#[derive(Debug)]
pub(crate) enum Keep {
    /// The newest bytes, about this many, in memory.
    Newest(usize),
    /// All, in a file.
    All(File),
}

/// What came of a stream.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) packets: Packets,
    pub(crate) dropped: u64,
    /// Bytes written, those dropped included.
    pub(crate) bytes: u64,
    pub(crate) gaps: u64,
    /// Where changes of code lie in the packets kept, and their numbers.
    pub(crate) boundaries: Vec<Boundary>,
    pub(crate) failure: Option<std::io::Error>,
}

/// What the scribe is told, in order.
enum Order {
    Begin {
        id: StreamId,
        region: Arc<Region>,
        encoder: Box<Encoder>,
        keep: Keep,
    },
    /// The chunk is written up to `end`; the program stood at `told` after it.
    Full {
        id: StreamId,
        end: u64,
        told: Option<u64>,
    },
    /// The log ends here.
    End {
        id: StreamId,
        end: u64,
        reply: Sender<Written>,
    },
}

/// The recorder's side.
#[derive(Debug)]
pub(crate) struct Scribe {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    next: StreamId,
    options: EncoderOptions,
    bytes: Arc<AtomicU64>,
}

impl Scribe {
    /// Starts the thread.
    pub(crate) fn start(options: EncoderOptions) -> Result<Self> {
        let (orders, inbox) = mpsc::channel();
        let bytes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&bytes);
        let thread = std::thread::Builder::new()
            .name("scribe".to_owned())
            .spawn(move || {
                Desk {
                    streams: HashMap::new(),
                    bytes: counter,
                }
                .work(&inbox)
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            orders,
            thread: Some(thread),
            next: 0,
            options,
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
        let mut encoder = Encoder::new(self.options);
        encoder.set_time(clock::now());
        encoder.start();
        let encoder = Box::new(encoder);
        self.tell(Order::Begin {
            id,
            region,
            encoder,
            keep,
        });
        id
    }

    pub(super) fn full(&self, id: StreamId, end: u64, told: Option<u64>) {
        self.tell(Order::Full { id, end, told });
    }

    /// Ends a stream; its packets come once all of it is written.
    pub(super) fn end(&self, id: StreamId, end: u64) -> Receiver<Written> {
        let (reply, written) = mpsc::channel();
        self.tell(Order::End { id, end, reply });
        written
    }

    fn tell(&self, order: Order) {
        // It listens as long as we live.
        let _ = self.orders.send(order);
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        let (nobody, _) = mpsc::channel();
        self.orders = nobody;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The scribe's side.
struct Desk {
    streams: HashMap<StreamId, Stream>,
    bytes: Arc<AtomicU64>,
}

impl Desk {
    fn work(mut self, inbox: &Receiver<Order>) {
        let mut looked = Instant::now();
        loop {
            match inbox.recv_timeout(PERIOD) {
                Ok(order) => self.take(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if looked.elapsed() >= PERIOD {
                self.streams.values_mut().for_each(Stream::look);
                looked = Instant::now();
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Begin {
                id,
                region,
                encoder,
                keep,
            } => {
                self.streams
                    .insert(id, Stream::new(region, *encoder, keep, Arc::clone(&self.bytes)));
            }
            Order::Full { id, end, told } => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.full(end, told);
                }
            }
            Order::End { id, end, reply } => {
                if let Some(mut stream) = self.streams.remove(&id) {
                    stream.write_to(end);
                    let _ = reply.send(stream.finish());
                }
            }
        }
    }
}

/// A log and its packets.
struct Stream {
    region: Arc<Region>,
    encoder: Encoder,
    store: Store,
    chunk: u64,
    /// How much of the chunk is read.
    read: u64,
    buffer: Vec<u8>,
    /// The program is in user code.
    on: bool,
    /// A system call that is in the log, but may be taken back.
    leaving: bool,
    gaps: u64,
    boundaries: Vec<Boundary>,
    bytes: Arc<AtomicU64>,
    counted: u64,
    /// Bytes of packets that are stored together, at least.
    segment: usize,
    /// Memory for the next of them.
    spare: Vec<u8>,
}

impl Stream {
    fn new(region: Arc<Region>, encoder: Encoder, keep: Keep, bytes: Arc<AtomicU64>) -> Self {
        let segment = match &keep {
            Keep::Newest(limit) => (limit / RING_SEGMENTS).min(SEGMENT),
            Keep::All(_) => SEGMENT,
        };
        Self {
            region,
            encoder,
            store: Store::new(keep),
            segment,
            spare: Vec::new(),
            chunk: 0,
            read: 0,
            buffer: Vec::new(),
            on: false,
            leaving: false,
            gaps: 0,
            boundaries: Vec::new(),
            bytes,
            counted: 0,
        }
    }

    /// Writes what has come since the last time.
    fn look(&mut self) {
        let now = clock::now();
        let end = self.region.pointer().wrapping_sub(self.region.chunk(self.chunk));
        // Elsewhere: the chunk is full, and an order on its way.
        if end <= CHUNK {
            self.write_to(end);
            self.encoder.set_time(now);
        }
    }

    fn full(&mut self, end: u64, told: Option<u64>) {
        self.write_to(end);
        self.region.give_back(self.chunk);
        self.chunk = (self.chunk + 1) % CHUNK_COUNT;
        self.read = 0;
        if let Some(told) = told.filter(|_| self.on) {
            self.sync(Avma(told));
        }
    }

    /// Writes the log up to `end`, a piece that fits the nearest cache at a time.
    fn write_to(&mut self, end: u64) {
        let mut log = std::mem::take(&mut self.buffer);
        while self.read < end {
            log.clear();
            let to = end.min(self.read + PIECE);
            self.region.read(self.chunk, self.read, to, &mut log);
            let done = self.write_all(&log);
            if done == 0 {
                break;
            }
            self.read += done as u64;
        }
        self.buffer = log;
        let written = self.encoder.written();
        self.bytes.fetch_add(written - self.counted, Ordering::Relaxed);
        self.counted = written;
    }

    /// Writes every event that is whole; says how many bytes of the log that was.
    fn write_all(&mut self, log: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = log.get(at..).unwrap_or_default();
            // A system call in the log may be taken back by the event after it.
            if !self.leaving {
                let (len, ip) = self.encoder.branches(|branches| write_branches(rest, branches));
                at += len;
                if let Some(ip) = ip {
                    self.sync(ip);
                }
            }
            let Some((event, len)) = log.get(at..).and_then(Event::read) else {
                return at;
            };
            if self.leaving || !event.is_branch() || log.len() - at < event::MAX_LEN {
                self.write(event);
                at += len;
            }
        }
    }

    fn write(&mut self, event: Event) {
        if let Event::Outcomes(outcomes) = event {
            return self.outcomes(outcomes);
        }
        if std::mem::take(&mut self.leaving) && event != Event::NoSyscall {
            self.leave();
        }
        match event {
            Event::Outcomes(_) | Event::NoSyscall => {}
            Event::Target { outcomes, target } => {
                self.outcomes(outcomes);
                self.indirect(target);
            }
            Event::Return { outcomes, target } => {
                self.outcomes(outcomes);
                self.near_return(target);
            }
            Event::Call { outcomes, next } => {
                self.outcomes(outcomes);
                self.encoder.call(Avma(next), Avma(0), false);
            }
            Event::IndirectCall {
                outcomes,
                next,
                target,
            } => {
                self.outcomes(outcomes);
                self.encoder.call(Avma(next), Avma(0), false);
                self.indirect(target);
            }
            Event::Syscall { time } => {
                self.encoder.set_time(Tsc(time));
                self.leaving = true;
            }
            Event::Leave { time } => {
                self.encoder.set_time(Tsc(time));
                self.leave();
            }
            Event::Enter { ip, time } => {
                self.encoder.set_time(Tsc(time));
                if !self.on {
                    self.encoder.enable(Avma(ip));
                    self.on = true;
                    self.sync(Avma(ip));
                }
            }
            Event::Interrupt { ip, time } => {
                self.encoder.set_time(Tsc(time));
                self.interrupt(Avma(ip));
            }
            Event::Turn(ip) => {
                self.interrupt(Avma(ip));
                self.encoder.enable(Avma(ip));
                self.on = true;
                self.sync(Avma(ip));
            }
            Event::Version(number) => self.boundaries.push(Boundary {
                offset: self.encoder.written(),
                number: number as u32,
            }),
            Event::Lost(ip) => {
                self.gaps += 1;
                self.encoder.flush();
                self.encoder.overflow(Some(Avma(ip)));
                self.on = true;
            }
        }
    }

    #[inline]
    fn outcomes(&mut self, outcomes: u8) {
        let count = event::count(outcomes);
        self.encoder
            .conditionals(u64::from(outcomes) & !(1 << count), count as u8);
    }

    #[inline]
    fn indirect(&mut self, target: u64) {
        self.encoder.indirect(Avma(target));
        self.sync(Avma(target));
    }

    #[inline]
    fn near_return(&mut self, target: u64) {
        self.encoder.near_return(Avma(target));
        self.sync(Avma(target));
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.on) {
            self.encoder.disable();
        }
    }

    fn interrupt(&mut self, ip: Avma) {
        if std::mem::take(&mut self.on) {
            self.encoder.disable_async(ip);
        }
    }

    /// PSB, when one is due: the program stands at `ip`.
    #[inline]
    fn sync(&mut self, ip: Avma) {
        if self.encoder.psb_due() {
            self.psb(ip);
        }
    }

    #[cold]
    fn psb(&mut self, ip: Avma) {
        if self.encoder.waiting() >= self.segment {
            let room = std::mem::take(&mut self.spare);
            let packets = self.encoder.take_for(room);
            self.spare = self.store.push(packets);
        }
        self.encoder.psb(ip);
    }

    fn finish(mut self) -> Written {
        if self.leaving {
            self.leave();
        }
        let _ = self.store.push(self.encoder.take());
        self.bytes
            .fetch_add(self.encoder.written() - self.counted, Ordering::Relaxed);
        let (bytes, gaps) = (self.encoder.written(), self.gaps);
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
        Written {
            packets,
            dropped,
            bytes,
            gaps,
            boundaries: boundaries.collect(),
            failure,
        }
    }
}

/// Writes the branches that a log begins with, as long as the longest event is sure to be whole. Says how
/// many bytes they were, and where the program stood after them, if that is known.
fn write_branches(log: &[u8], branches: &mut Branches<'_>) -> (usize, Option<Avma>) {
    let mut at = 0;
    let mut ip = None;
    while !branches.is_full()
        && let Some(head) = log.get(at..).and_then(|rest| rest.first_chunk())
    {
        let &[tag, behind, ref words @ ..]: &[u8; event::MAX_LEN] = head;
        let &[first, second] = words.as_chunks::<8>().0.first_chunk().unwrap_or(&[[0; 8]; 2]);
        let (first, second) = (u64::from_le_bytes(first), u64::from_le_bytes(second));
        let outcomes = match tag {
            0..event::TARGET => tag,
            event::TARGET | event::CALL | event::RETURN | event::INDIRECT_CALL => behind,
            _ => break,
        };
        let count = event::count(outcomes);
        branches.conditionals(u64::from(outcomes) & !(1 << count), count as u8);
        ip = None;
        let target = match tag {
            event::TARGET => Avma(first),
            event::RETURN => {
                if branches.compressed_return(Avma(first)) {
                    ip = Some(Avma(first));
                    at += 10;
                    continue;
                }
                Avma(first)
            }
            event::INDIRECT_CALL => {
                branches.call(Avma(first));
                at += 8;
                Avma(second)
            }
            event::CALL => {
                branches.call(Avma(first));
                at += 10;
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        branches.indirect(target);
        ip = Some(target);
        at += 10;
    }
    (at, ip)
}

/// Packets, kept.
enum Store {
    Ring(Ring),
    File {
        file: File,
        len: u64,
        failure: Option<std::io::Error>,
    },
}

impl Store {
    fn new(keep: Keep) -> Self {
        match keep {
            Keep::Newest(limit) => Self::Ring(Ring::new(Some(limit))),
            Keep::All(file) => Self::File {
                file,
                len: 0,
                failure: None,
            },
        }
    }

    /// Keeps packets; gives back memory for others.
    fn push(&mut self, packets: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Ring(ring) => ring.push(packets),
            Self::File { file, len, failure } => {
                if failure.is_none() {
                    match file.write_all(&packets) {
                        Ok(()) => *len += packets.len() as u64,
                        Err(error) => *failure = Some(error),
                    }
                }
                packets
            }
        }
    }

    fn finish(self) -> (Packets, u64, Option<std::io::Error>) {
        match self {
            Self::Ring(ring) => {
                let dropped = ring.dropped();
                (Packets::Kept(ring.into_bytes()), dropped, None)
            }
            Self::File { len, failure, .. } => (Packets::Filed(len), 0, failure),
        }
    }
}
