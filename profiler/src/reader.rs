//! A thread that reads the rings, so that the kernel has room while records are processed.

use crate::priority;
use crate::sampler::{RingRecord, Rings};
use crate::walked_sample::WalkedSample;
use crate::{Error, Result};
use backtrail_bpf::CodeEvent;
use backtrail_perf::sample::Sample;
use backtrail_pt::Nanos;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest wait between two readings of the rings.
const WAIT: Duration = Duration::from_millis(100);
/// The wait of a reader whose records are not processed yet.
const FULL_WAIT: Duration = Duration::from_millis(2);
/// The bytes of records that may wait. Beyond them the rings fill, and the kernel counts what it
/// drops.
const MAX_WAITING: usize = 64 << 20;
/// The bytes of waiting records from which on only the innermost bytes of copied stacks are kept.
/// The stack may then be incomplete, but the sample counts.
const STACK_LIMITS: [(usize, usize); 2] = [(40 << 20, 0), (20 << 20, 1 << 10)];
/// The memory of a record that is no sample, at most about.
const OTHER_RECORD: usize = 256;

/// The records of one reading of all rings, with their times.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// All records before this time are in this batch or in earlier ones.
    pub until: u64,
    /// The records, in no order.
    pub records: Vec<(u64, RingRecord)>,
    bytes: usize,
}

/// The state that the thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// The bytes of the batches that were not received yet.
    waiting: AtomicUsize,
    /// The reason why the thread has no real-time priority.
    no_priority: OnceLock<String>,
}

/// The thread. It ends with its owner.
#[derive(Debug)]
pub(crate) struct ReaderThread {
    batches: Receiver<Result<Batch>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderThread {
    /// Starts to read. `clock` returns the time on the clock of the records.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] if no thread can be started.
    pub fn start(rings: Rings, clock: fn() -> u64) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let (sender, batches) = channel();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("rings".to_owned());
        let thread = thread
            .spawn(move || read(rings, clock, &of_thread, &sender))
            .map_err(|error| Error::Call { call: "clone", error })?;
        Ok(Self {
            batches,
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the next batch. `None`: there is none within `time`.
    ///
    /// # Errors
    ///
    /// Those of reading the rings.
    pub fn receive(&self, time: Duration) -> Result<Option<Batch>> {
        match self.batches.recv_timeout(time) {
            Ok(batch) => self.received(batch).map(Some),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// Reads the rings for the last time, and returns all batches.
    ///
    /// # Errors
    ///
    /// Those of reading the rings.
    pub fn finish(&mut self) -> Result<Vec<Batch>> {
        self.stop();
        let rest: Vec<_> = self.batches.try_iter().collect();
        rest.into_iter().map(|batch| self.received(batch)).collect()
    }

    /// Returns the reason why the thread has no real-time priority. `None`: it has, or has not
    /// started yet.
    pub fn no_priority(&self) -> Option<&str> {
        self.shared.no_priority.get().map(String::as_str)
    }

    fn received(&self, batch: Result<Batch>) -> Result<Batch> {
        let batch = batch?;
        self.shared.waiting.fetch_sub(batch.bytes, Ordering::Relaxed);
        Ok(batch)
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has ended its batches.
            let _ = thread.join();
        }
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        self.stop();
    }
}

fn read(mut rings: Rings, clock: fn() -> u64, shared: &Shared, batches: &Sender<Result<Batch>>) {
    let raised = priority::raise();
    if let Err(error) = &raised {
        // Only this thread sets it.
        let _ = shared.no_priority.set(error.to_string());
    }
    loop {
        let is_last = shared.stop.load(Ordering::Relaxed);
        if !is_last && shared.waiting.load(Ordering::Relaxed) > MAX_WAITING {
            std::thread::sleep(FULL_WAIT);
            continue;
        }
        let waited = match is_last {
            true => Ok(()),
            false => rings.wait(WAIT),
        };
        let began = Instant::now();
        let limit = stack_limit(shared.waiting.load(Ordering::Relaxed));
        let batch = waited.and_then(|()| read_once(&mut rings, clock, limit));
        let is_over = is_last || batch.is_err();
        if let Ok(batch) = &batch {
            shared.waiting.fetch_add(batch.bytes, Ordering::Relaxed);
        }
        // Without a receiver the recording is over.
        if batches.send(batch).is_err() || is_over {
            return;
        }
        if raised.is_ok() {
            std::thread::sleep(priority::rest_after(began.elapsed()));
        }
    }
}

/// Returns the most bytes of a copied stack that are kept while this number of bytes waits.
fn stack_limit(waiting: usize) -> usize {
    let limit = STACK_LIMITS.iter().find(|(bytes, _)| waiting > *bytes);
    limit.map_or(usize::MAX, |(_, limit)| *limit)
}

fn read_once(rings: &mut Rings, clock: fn() -> u64, stack_limit: usize) -> Result<Batch> {
    let mut batch = Batch {
        until: clock(),
        ..Batch::default()
    };
    rings.drain(|mut record| {
        shorten(&mut record, stack_limit);
        let time = match &record {
            RingRecord::Sample(_, sample) => sample.time,
            RingRecord::Walked(_, walked) => walked.sample.time,
            RingRecord::Code(time, _) => *time,
            RingRecord::Other(record) => record.id.time,
        };
        batch.bytes += memory(&record);
        batch.records.push((time.map_or(0, |Nanos(time)| time), record));
    })?;
    Ok(batch)
}

/// Cuts a copied stack.
fn shorten(record: &mut RingRecord, limit: usize) {
    if let RingRecord::Sample(_, sample) = record
        && let Some(user) = &mut sample.user
        && user.stack.len() > limit
    {
        user.stack.truncate(limit);
        user.stack.shrink_to_fit();
    }
}

/// Returns the bytes that a record takes. In the ring it may have taken many more: a copy of a
/// stack has its full size there, also if the stack is shorter.
fn memory(record: &RingRecord) -> usize {
    let of_sample = |sample: &Sample| {
        let user = sample.user.as_ref();
        let user = user.map_or(0, |user| size_of_val(&*user.registers) + user.stack.len());
        size_of_val(&*sample.chain) + size_of_val(&*sample.branches) + sample.payload.len() + user
    };
    let boxed = match record {
        RingRecord::Sample(_, sample) => size_of::<Sample>() + of_sample(sample),
        RingRecord::Walked(_, walked) => {
            let stack = &walked.stack;
            let words = size_of_val(&*stack.user) + size_of_val(&*stack.kernel) + stack.context.len();
            size_of::<WalkedSample>() + of_sample(&walked.sample) + words
        }
        RingRecord::Code(_, code) => {
            size_of::<CodeEvent>() + code.qualname.len() + code.file.len() + code.lines.len()
        }
        RingRecord::Other(_) => OTHER_RECORD,
    };
    size_of::<(u64, RingRecord)>() + boxed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SampledEvent;
    use crate::options::Target;
    use crate::sampler::{Sampler, SamplerOptions};
    use backtrail_perf::sample::UserState;
    use backtrail_pt::Pid;

    /// Returns a sample with a copied stack.
    fn sample(len: usize) -> RingRecord {
        let user = UserState {
            is_32_bit: false,
            registers: Vec::new(),
            stack: (0..len).map(|index| (index / 100) as u8).collect(),
        };
        let sample = Sample {
            user: Some(user),
            ..Sample::default()
        };
        RingRecord::Sample(0, Box::new(sample))
    }

    fn stack(record: RingRecord) -> Vec<u8> {
        let RingRecord::Sample(_, sample) = record else {
            panic!("another record");
        };
        sample.user.unwrap().stack
    }

    #[test]
    fn stacks_are_cut_from_their_outer_end() {
        let cut = |len: usize, limit: usize| {
            let mut record = sample(len);
            shorten(&mut record, limit);
            stack(record)
        };
        let short = cut(9000, 1024);
        assert_eq!((short.len(), short[0], short[1023]), (1024, 0, 10));
        assert_eq!(cut(1024, 1024).len(), 1024);
        assert_eq!(cut(9000, usize::MAX).len(), 9000);
        assert!(cut(9000, 0).is_empty());
    }

    #[test]
    fn fewer_bytes_are_kept_the_more_records_wait() {
        let limits = [0, 20 << 20, 21 << 20, 41 << 20, MAX_WAITING].map(stack_limit);
        assert_eq!(limits, [usize::MAX, usize::MAX, 1 << 10, 0, 0]);
        // Without stacks, the remaining room lasts for half a minute of 1000 Hz on two processors.
        assert!((MAX_WAITING - STACK_LIMITS[0].0) / memory(&sample(0)) > 60_000);
    }

    #[test]
    fn records_count_with_the_bytes_that_they_keep() {
        let [empty, stack] = [0, 9000].map(|len| memory(&sample(len)));
        assert_eq!(stack, empty + 9000);
        let mut cut = sample(9000);
        shorten(&mut cut, 1024);
        assert_eq!(memory(&cut), empty + 1024);
    }

    fn no_time() -> u64 {
        7
    }

    /// Samples this process while it computes, and receives nothing until then.
    #[test]
    fn records_wait_for_a_slow_receiver() {
        let opened = Sampler::open(&SamplerOptions {
            target: &Target::Process(Pid(std::process::id())),
            program: None,
            events: &[SampledEvent::Cpu],
            frequency: 1000,
            sideband: true,
        });
        let (sampler, rings) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        let mut reader = ReaderThread::start(rings, no_time).unwrap();
        sampler.enable().unwrap();
        let end = Instant::now() + Duration::from_millis(300);
        let mut number = 1_u64;
        while Instant::now() < end {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        assert_ne!(number, 0);
        sampler.disable().unwrap();
        let batches = reader.finish().unwrap();
        assert!(batches.iter().all(|batch| batch.until == 7));
        let records = batches.iter().flat_map(|batch| &batch.records);
        let samples = records.filter(|(_, record)| matches!(record, RingRecord::Sample(..)));
        // 300 of an idle machine.
        assert!(samples.count() > 3);
        assert_eq!(reader.shared.waiting.load(Ordering::Relaxed), 0);
    }
}
