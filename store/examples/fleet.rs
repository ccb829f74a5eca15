//! A store of a made-up fleet in a directory, to measure sizes and times of queries.
//!
//!     fleet write DIRECTORY SAMPLES SERVICES DAYS     writes and compacts a store
//!     fleet import DIRECTORY FILE                      writes a store of one profile
//!     fleet sizes DIRECTORY                           prints bytes a sample
//!     fleet query DIRECTORY                           prints times of queries
//!
//! Samples are those of a timer of 99 Hz on each processor. A service has a tree of functions, and
//! few of its stacks have most of its samples.

use backtrail_profile::{
    Event, EventId, Frame, LabelSetId, Module, Profile, Sample, StackId, Thread, ThreadId, UnixNanos,
};
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};
use backtrail_store::{
    Cancel, Catalog, Column, CompactionOptions, Filter, Hour, Limits, Listing, Matcher, MemoryCatalog,
    Origin, Query, SegmentEntry, Store, StoreOptions, TableKind, Writer, WriterLimits,
};
use object_store::local::LocalFileSystem;
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
const STACKS: u64 = 6000;
/// The distinct frames of a service.
const CALL_SITES: u64 = 3000;

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
        let event = profile.events.intern(event)?;
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
            let offset = FileOffset(4096 + random.below(1 << 22));
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
                if stacks.len() < 4000 {
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

    /// Replaces the samples by those of a host in an hour.
    fn sample(&mut self, hour: Hour, count: u64, random: &mut Random) {
        self.profile.samples.clear();
        let mut thread = self.threads[0];
        let mut tick = 0;
        for _ in 0..count {
            // The service has a part of the processors.
            tick += 1 + random.below(2);
            let cpu = random.below(4);
            let jitter = random.below(20_000);
            if random.below(8) == 0 {
                thread = self.threads[random.skewed(self.threads.len() as u64) as usize];
            }
            let offset = (tick * PERIOD / 4 + cpu * 2_500_000 + jitter) % 3_599_000_000_000;
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
    }
}

async fn write(directory: &Path, samples: u64, services: u64, days: u64) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let objects = Arc::new(LocalFileSystem::new_with_prefix(directory)?);
    let catalog = Arc::new(MemoryCatalog::default());
    let store = Store::new(objects.clone(), catalog.clone(), StoreOptions::default());
    let mut writer = Writer::new(objects, catalog.clone(), WriterLimits::default());
    let mut all: Vec<_> = (0..services).map(Service::new).collect::<Result<_>>()?;
    let hours = days * 24;
    let per_host = samples.div_ceil(hours * services * HOSTS);
    let (begin, mut written, mut compacting) = (Instant::now(), 0, 0.0);
    for number in 0..hours {
        let hour = Hour(FIRST.0 + number as u32);
        for (index, service) in all.iter_mut().enumerate() {
            for host in 0..HOSTS {
                let mut random = Random(number << 40 | (index as u64) << 20 | host);
                service.sample(hour, per_host, &mut random);
                let origin = Origin {
                    service: format!("service-{index}").into(),
                    host: format!("host-{index}-{host}").into(),
                    build: "v1".into(),
                    region: "eu".into(),
                    language: "rust".into(),
                };
                writer.write(&origin, &service.profile, hour.start()).await?;
                written += per_host;
            }
        }
        writer.flush().await?;
        let compaction = Instant::now();
        let options = CompactionOptions {
            min_segments: 2,
            ..CompactionOptions::default()
        };
        store.compact(hour, options, &Cancel::default()).await?;
        compacting += compaction.elapsed().as_secs_f64();
    }
    store
        .collect_garbage(UnixNanos(u64::MAX), Store::MIN_GRACE)
        .await?;
    let entries = list(&*catalog).await?;
    std::fs::write(directory.join("catalog.json"), serde_json::to_vec(&entries)?)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{written} samples in {seconds:.1} s, of which {compacting:.1} s compaction");
    Ok(())
}

async fn import(directory: &Path, file: &str) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let profile = backtrail_profile::format::read(&std::fs::read(file)?)?;
    let objects = Arc::new(LocalFileSystem::new_with_prefix(directory)?);
    let mut writer = Writer::new(
        objects,
        Arc::new(MemoryCatalog::default()),
        WriterLimits::default(),
    );
    let origin = Origin {
        service: "host".into(),
        ..Origin::default()
    };
    let mut entries = writer.write(&origin, &profile, FIRST.start()).await?;
    entries.extend(writer.flush().await?);
    std::fs::write(directory.join("catalog.json"), serde_json::to_vec(&entries)?)?;
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

async fn query(directory: &Path) -> Result<()> {
    let (store, entries) = open(directory).await?;
    let first = entries.iter().map(|entry| entry.hour).min().unwrap_or(FIRST);
    let last = entries.iter().map(|entry| entry.hour).max().unwrap_or(FIRST);
    let whole = first.start()..last.end();
    let one = Matcher::equals(Column::Service, "service-0");
    for (name, filter) in [
        (
            "last hour, all services",
            Filter::of_time(last.start()..last.end()),
        ),
        ("all hours, one service", Filter::of_time(whole.clone()).with(one)),
        ("all hours, all services", Filter::of_time(whole)),
    ] {
        let mut query = Query::new(filter);
        query.limits = Limits::default();
        for attempt in ["cold", "warm"] {
            let begin = Instant::now();
            let (profile, coverage) = store.merge(&query, &[]).await?;
            let seconds = begin.elapsed().as_secs_f64();
            println!(
                "{name}, {attempt}: {seconds:.2} s, {} samples, {:.1} MB, {} stacks, {} of {} row groups",
                coverage.rows,
                coverage.bytes as f64 / 1e6,
                profile.samples.len(),
                coverage.row_groups,
                coverage.row_groups + coverage.row_groups_pruned,
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
        ["sizes", directory] => sizes(Path::new(directory)).await,
        ["query", directory] => query(Path::new(directory)).await,
        _ => Err(
            "usage: fleet write DIRECTORY SAMPLES SERVICES DAYS | import DIRECTORY FILE | sizes DIRECTORY | query DIRECTORY".into(),
        ),
    }
}
