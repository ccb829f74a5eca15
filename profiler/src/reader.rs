//! A thread that reads the rings, so that the kernel has room while records are processed.

use crate::priority;
use crate::sampler::{RingRecord, Rings};
use crate::{Error, Result};
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
/// The bytes of waiting records from which on only the innermost part of copied stacks is kept.
/// The stack may then be incomplete, but the sample counts.
const MANY_WAITING: usize = 24 << 20;
const SHORT_STACK: usize = 1 << 10;

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
        let is_behind = shared.waiting.load(Ordering::Relaxed) > MANY_WAITING;
        let batch = waited.and_then(|()| read_once(&mut rings, clock, is_behind));
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

fn read_once(rings: &mut Rings, clock: fn() -> u64, is_behind: bool) -> Result<Batch> {
    let mut batch = Batch {
        until: clock(),
        ..Batch::default()
    };
    let mut cut = 0;
    let bytes = rings.drain(|mut record| {
        if is_behind {
            cut += shorten(&mut record);
        }
        let time = match &record {
            RingRecord::Sample(_, sample) => sample.time,
            RingRecord::Walked(_, walked) => walked.sample.time,
            RingRecord::Code(time, _) => *time,
            RingRecord::Other(record) => record.id.time,
        };
        batch.records.push((time.map_or(0, |Nanos(time)| time), record));
    })?;
    batch.bytes = bytes.saturating_sub(cut);
    Ok(batch)
}

/// Cuts a copied stack, and returns the number of bytes that were cut.
fn shorten(record: &mut RingRecord) -> usize {
    let RingRecord::Sample(_, sample) = record else {
        return 0;
    };
    let Some(user) = &mut sample.user else { return 0 };
    let before = user.stack.len();
    user.stack.truncate(SHORT_STACK);
    user.stack.shrink_to_fit();
    before - user.stack.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SampledEvent;
    use crate::options::Target;
    use crate::sampler::{Sampler, SamplerOptions};
    use backtrail_perf::sample::{Sample, UserState};
    use backtrail_pt::Pid;

    #[test]
    fn stacks_are_cut_from_their_outer_end() {
        let sample = |len: usize| {
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
        };
        let mut long = sample(9000);
        assert_eq!(shorten(&mut long), 9000 - SHORT_STACK);
        assert_eq!(shorten(&mut sample(SHORT_STACK)), 0);
        let RingRecord::Sample(_, cut) = long else {
            panic!("another record");
        };
        let stack = cut.user.unwrap().stack;
        assert_eq!(
            (stack.len(), stack[0], stack[SHORT_STACK - 1]),
            (SHORT_STACK, 0, 10)
        );
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
