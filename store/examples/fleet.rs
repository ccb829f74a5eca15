//! A store of a made-up fleet in a directory, to measure sizes and times of queries.
//!
//!     fleet write DIRECTORY SAMPLES SERVICES DAYS     writes a store, a segment an hour
//!     fleet import DIRECTORY FILE                     writes and compacts a store of one profile
//!     fleet pushes DIRECTORY COUNT SAMPLES            writes profiles as services push them
//!     fleet sizes DIRECTORY                           prints bytes a sample
//!     fleet query DIRECTORY                           prints times and answers of queries
//!
//! Samples are those of a timer of 99 Hz on each processor. A service has a tree of functions, and
//! few of its stacks have most of its samples.

use backtrail_profile::{
    Event, EventId, Frame, FrameId, Id, LabelSetId, Module, Profile, Sample, StackId, Thread, ThreadId,
    UnixNanos,
};
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};
use backtrail_store::{
    Cancel, Catalog, Column, CompactionOptions, Filter, Hour, Limits, Listing, Matcher, MemoryCatalog,
    Origin, Origins, Query, SegmentEntry, Store, StoreOptions, TableKind, Writer, WriterLimits,
};
use object_store::local::LocalFileSystem;
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The first hour of the store.
const FIRST: Hour = Hour(498_000);
/// The time between two samples of a processor, in nanoseconds.
const PERIOD: u64 = 10_101_010;
/// The hosts of a service.
const HOSTS: u64 = 4;
/// The distinct stacks of a service.
const STACKS: u64 = 1500;
/// The distinct frames of a service.
const CALL_SITES: u64 = 1200;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A generator of pseudorandom numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns a number below a limit. Small ones are much more frequent.
    fn skewed(&mut self, limit: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (unit.powi(4) * limit as f64) as u64
    }
}

/// A service: its profile without samples, and the ids that samples use.
struct Service {
    profile: Profile,
    event: EventId,
    labels: LabelSetId,
    threads: Vec<ThreadId>,
    stacks: Vec<StackId>,
}

impl Service {
    fn new(number: u64) -> Result<Self> {
        let mut random = Random(number * 7919);
        let mut profile = Profile::default();
        let (name, unit) = (profile.string("cpu")?, profile.string("nanoseconds")?);
        let event = Event {
            name,
            unit,
            period: PERIOD,
        };
        let event = profile.intern_event(event)?;
        let labels = profile.label_set(Vec::new())?;
        let mut modules = Vec::new();
        for module in 0..12 {
            // The last libraries are those of all services.
            let owner = if module < 4 { number } else { u64::MAX };
            let path = profile.string(&format!("/usr/lib/lib-{owner}-{module}.so"))?;
            let id = [owner.to_le_bytes(), [module; 8]].concat();
            let build_id = BuildId::new(&id);
            modules.push(profile.modules.intern(Module { build_id, path })?);
        }
        let mut frames = Vec::new();
        for _ in 0..CALL_SITES {
            let module = modules[random.skewed(12) as usize];
            // Services call the same functions of the libraries that all have.
            let offset = match module.index() < 4 {
                true => FileOffset(4096 + random.below(1 << 22)),
                false => FileOffset(4096 + random.below(1500) * 96),
            };
            frames.push(profile.frames.intern(Frame::Code { module, offset })?);
        }
        let mut stacks = vec![StackId::EMPTY];
        let mut leaves = Vec::new();
        while (leaves.len() as u64) < STACKS {
            // A new stack continues an earlier one that was cut at a caller.
            let mut stack = stacks[random.skewed(stacks.len() as u64) as usize];
            for _ in 0..1 + random.below(12) {
                let frame = frames[random.skewed(CALL_SITES) as usize];
                stack = profile.stacks.push(stack, frame)?;
                if stacks.len() < 1000 {
                    stacks.push(stack);
                }
            }
            leaves.push(stack);
        }
        let process_name = profile.string(&format!("service-{number}"))?;
        let mut threads = Vec::new();
        for thread in 0..24u32 {
            let name = profile.string(&format!("worker-{thread}"))?;
            let pid = Pid(1000 + number as u32);
            let tid = Tid(pid.0 + 1 + thread);
            threads.push(profile.threads.intern(Thread {
                pid,
                tid,
                process_name,
                name,
            })?);
        }
        Ok(Self {
            profile,
            event,
            labels,
            threads,
            stacks: leaves,
        })
    }

    /// Replaces the samples by those of an hour. Returns the host of each.
    fn sample(&mut self, hour: Hour, count: u64, random: &mut Random) -> Vec<u32> {
        self.profile.samples.clear();
        let mut hosts = Vec::with_capacity(count as usize);
        let mut thread = self.threads[0];
        let mut tick = 0;
        for number in 0..count {
            // The service has a part of the processors.
            tick += 1 + random.below(2);
            let cpu = random.below(4);
            let jitter = random.below(20_000);
            if random.below(8) == 0 {
                thread = self.threads[random.skewed(self.threads.len() as u64) as usize];
            }
            let offset = (tick * PERIOD / 4 + cpu * 2_500_000 + jitter) % 3_599_000_000_000;
            hosts.push((number * HOSTS / count) as u32);
            self.profile.samples.push(Sample {
                event: self.event,
                weight: PERIOD as i64,
                stack: self.stacks[random.skewed(self.stacks.len() as u64) as usize],
                time: Some(UnixNanos(hour.start().0 + offset)),
                thread: Some(thread),
                cpu: Some(Cpu(cpu as u32)),
                labels: self.labels,
            });
        }
        hosts
    }
}

/// The store that is written.
#[derive(Clone)]
struct Fleet {
    objects: Arc<LocalFileSystem>,
    catalog: Arc<MemoryCatalog>,
    /// The samples of a service in an hour.
    samples: u64,
    services: u64,
}

impl Fleet {
    /// Writes hours, each as one segment.
    async fn write(self, hours: Vec<Hour>) -> Result<u64> {
        // As large as a segment after compaction.
        let limits = WriterLimits {
            rows: usize::MAX,
            bytes: usize::MAX,
        };
        let mut writer = Writer::new(self.objects, self.catalog, limits);
        let mut all: Vec<_> = (0..self.services).map(Service::new).collect::<Result<_>>()?;
        let mut written = 0;
        for hour in hours {
            for (index, service) in all.iter_mut().enumerate() {
                let mut random = Random(u64::from(hour.0) << 20 | index as u64);
                let of_sample = service.sample(hour, self.samples, &mut random);
                let distinct: Vec<_> = (0..HOSTS).map(|host| origin(index, host)).collect();
                let origins = Origins {
                    distinct: &distinct,
                    of_sample: &of_sample,
                };
                writer.add_with_origins(origins, &[], &service.profile, hour.start())?;
                written += self.samples;
            }
            writer.flush().await?;
        }
        Ok(written)
    }
}

fn origin(service: usize, host: u64) -> Origin {
    Origin {
        service: format!("service-{service}").into(),
        host: format!("host-{service}-{host}").into(),
        build: "v1".into(),
        region: "eu".into(),
        language: "rust".into(),
    }
}

async fn write(directory: &Path, samples: u64, services: u64, days: u64) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let catalog = Arc::new(MemoryCatalog::default());
    let fleet = Fleet {
        objects: Arc::new(LocalFileSystem::new_with_prefix(directory)?),
        catalog: catalog.clone(),
        samples: samples.div_ceil(days * 24 * services),
        services,
    };
    let (begin, mut written) = (Instant::now(), 0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for day in 0..days {
        let mut parts = vec![Vec::new(); threads];
        for hour in 0..24 {
            parts[hour as usize % threads].push(Hour(FIRST.0 + (day * 24 + hour) as u32));
        }
        let mut work = tokio::task::JoinSet::new();
        for hours in parts {
            let fleet = fleet.clone();
            work.spawn(async move { fleet.write(hours).await.map_err(|error| error.to_string()) });
        }
        while let Some(part) = work.join_next().await {
            written += part??;
        }
        // Written segments are usable before the end.
        let entries = list(&*catalog).await?;
        std::fs::write(directory.join("catalog.json"), serde_json::to_vec(&entries)?)?;
        let seconds = begin.elapsed().as_secs_f64();
        println!("{written} samples in {seconds:.1} s");
    }
    Ok(())
}

/// Writes a profile as two segments, and compacts them.
async fn import(directory: &Path, file: &str) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut profile = backtrail_profile::format::read(&std::fs::read(file)?)?;
    let objects = Arc::new(LocalFileSystem::new_with_prefix(directory)?);
    let catalog = Arc::new(MemoryCatalog::default());
    let mut writer = Writer::new(objects.clone(), catalog.clone(), WriterLimits::default());
    let origin = Origin {
        service: "host".into(),
        ..Origin::default()
    };
    // Times of a recording may cross an hour.
    let first = profile.samples.iter().filter_map(|sample| sample.time).min();
    for sample in &mut profile.samples {
        let since = |time: UnixNanos| time.0.saturating_sub(first.map_or(0, |first| first.0));
        sample.time = sample.time.map(|time| UnixNanos(FIRST.start().0 + since(time)));
    }
    let samples = std::mem::take(&mut profile.samples);
    for part in samples.chunks(samples.len().div_ceil(2).max(1)) {
        profile.samples = part.to_vec();
        writer.write(&origin, &profile, FIRST.start()).await?;
        writer.flush().await?;
    }
    let store = Store::new(objects, catalog.clone(), StoreOptions::default());
    let options = CompactionOptions {
        min_segments: 2,
        ..CompactionOptions::default()
    };
    store.compact(FIRST, options, &Cancel::default()).await?;
    let entries = list(&*catalog).await?;
    std::fs::write(directory.join("catalog.json"), serde_json::to_vec(&entries)?)?;
    Ok(())
}

/// Writes profiles as pprof, as services push them.
fn pushes(directory: &Path, count: u64, samples: u64) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    for number in 0..count {
        let mut service = Service::new(number)?;
        service.sample(FIRST, samples, &mut Random(number));
        let mut packed = Vec::new();
        backtrail_profile::format::pprof::write(&service.profile, &mut packed)?;
        std::fs::write(directory.join(format!("{number}.pb.gz")), packed)?;
    }
    Ok(())
}

async fn list(catalog: &dyn Catalog) -> Result<Vec<SegmentEntry>> {
    let hours = Hour(0)..Hour(u32::MAX);
    let listing = Listing {
        hours,
        services: None,
    };
    Ok(catalog.list(&listing).await?)
}

async fn open(directory: &Path) -> Result<(Store, Vec<SegmentEntry>)> {
    let objects = Arc::new(LocalFileSystem::new_with_prefix(directory)?);
    let catalog = MemoryCatalog::default();
    let entries: Vec<SegmentEntry> = serde_json::from_slice(&std::fs::read(directory.join("catalog.json"))?)?;
    catalog.commit(&entries, &[], UnixNanos(0)).await?;
    let store = Store::new(objects, Arc::new(catalog), StoreOptions::default());
    Ok((store, entries))
}

async fn sizes(directory: &Path) -> Result<()> {
    let (_, entries) = open(directory).await?;
    let rows: u64 = entries.iter().map(|entry| entry.samples.rows).sum();
    println!("{} segments, {rows} samples", entries.len());
    for kind in TableKind::ALL {
        let files = || entries.iter().map(|entry| entry.file(kind));
        let bytes: u64 = files().map(|file| file.bytes).sum();
        let count: u64 = files().map(|file| file.rows).sum();
        let per_sample = bytes as f64 / rows as f64;
        println!(
            "{:9} {count:11} rows {bytes:12} bytes {per_sample:7.3} a sample",
            kind.name()
        );
    }
    Ok(())
}

/// Returns the own weights by module and offset: their number, their sum, and the largest one.
fn own_weights(profile: &Profile) -> (usize, i64, String) {
    let mut weights: HashMap<FrameId, i64> = HashMap::new();
    for sample in &profile.samples {
        if let Some(frame) = profile.stacks.frames(sample.stack).next() {
            *weights.entry(frame).or_default() += sample.weight;
        }
    }
    let place = |frame: &FrameId| match profile.frames.get(*frame) {
        Some(Frame::Code { module, offset }) => {
            let module = profile.modules.get(*module);
            let path = module.map_or("", |module| profile.text(module.path));
            format!("{path}+{}", offset.0)
        }
        _ => String::new(),
    };
    let largest = weights
        .iter()
        .map(|(frame, weight)| (*weight, place(frame)))
        .max();
    let sum = weights.values().sum();
    let largest = largest.map_or_else(String::new, |(weight, place)| format!("{place}={weight}"));
    (weights.len(), sum, largest)
}

/// Prints the time of each query, and what other engines must return: a line with tabs.
async fn query(directory: &Path) -> Result<()> {
    let (store, entries) = open(directory).await?;
    let first = entries.iter().map(|entry| entry.hour).min().unwrap_or(FIRST);
    let last = entries.iter().map(|entry| entry.hour).max().unwrap_or(FIRST);
    let one = Matcher::equals(Column::Service, "service-0");
    for (name, filter) in [
        ("hour", Filter::of_time(last.start()..last.end())),
        ("service", Filter::of_time(first.start()..last.end()).with(one)),
    ] {
        let mut query = Query::new(filter);
        query.limits = Limits::default();
        for attempt in ["first", "second"] {
            let begin = Instant::now();
            let (profile, coverage) = store.merge(&query, &[]).await?;
            let seconds = begin.elapsed().as_secs_f64();
            let (count, sum, largest) = own_weights(&profile);
            println!("{name}\t{attempt}\t{seconds:.3}\t{count}\t{sum}\t{largest}");
            eprintln!(
                "{name}, {attempt}: {} samples in {} of {} row groups, {:.1} MB of samples, {} stacks",
                coverage.rows,
                coverage.row_groups,
                coverage.row_groups + coverage.row_groups_pruned,
                coverage.bytes as f64 / 1e6,
                profile.samples.len(),
            );
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match texts.as_slice() {
        ["write", directory, samples, services, days] => {
            write(
                Path::new(directory),
                samples.parse()?,
                services.parse()?,
                days.parse()?,
            )
            .await
        }
        ["import", directory, file] => import(Path::new(directory), file).await,
        ["pushes", directory, count, samples] => {
            pushes(Path::new(directory), count.parse()?, samples.parse()?)
        }
        ["sizes", directory] => sizes(Path::new(directory)).await,
        ["query", directory] => query(Path::new(directory)).await,
        _ => Err("the arguments are not known; the head of store/examples/fleet.rs lists them".into()),
    }
}
