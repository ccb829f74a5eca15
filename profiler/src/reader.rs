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
        let batch = waited.and_then(|()| read_once(&mut rings, clock));
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

fn read_once(rings: &mut Rings, clock: fn() -> u64) -> Result<Batch> {
    let mut batch = Batch {
        until: clock(),
        ..Batch::default()
    };
    batch.bytes = rings.drain(|record| {
        let time = match &record {
            RingRecord::Sample(_, sample) => sample.time,
            RingRecord::Walked(_, walked) => walked.sample.time,
            RingRecord::Code(time, _) => *time,
            RingRecord::Other(record) => record.id.time,
        };
        batch.records.push((time.map_or(0, |Nanos(time)| time), record));
    })?;
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SampledEvent;
    use crate::options::Target;
    use crate::sampler::{Sampler, SamplerOptions};
    use backtrail_pt::Pid;

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
