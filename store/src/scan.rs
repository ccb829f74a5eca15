//! The scan of samples: segments and row groups that match, decoded on several threads.

mod accumulate;
mod group;
mod plan;
mod segment;

pub(crate) use accumulate::{Accumulate, GroupKey, Groups, check_memory};
pub(crate) use segment::SegmentScan;

use crate::filter::{Column, Filter};
use crate::limits::{Coverage, LimitKind, Limits};
use crate::query::Query;
use crate::segment::SegmentEntry;
use crate::segment_reader::SegmentReader;
use crate::{Error, Result, blocking};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use plan::GroupPlan;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The time after which a scan that waits for the object store checks deadline and cancellation.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The columns that a scan gives to its accumulators.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Whether the time is needed.
    pub(crate) time: bool,
    /// Whether the weight is needed.
    pub(crate) weight: bool,
    /// Whether the stack is needed.
    pub(crate) stack: bool,
}

/// A scan: the samples, the columns that they are grouped by, and those that are added up.
pub(crate) struct Scan {
    /// The samples.
    pub(crate) filter: Filter,
    /// The columns of the groups.
    pub(crate) group_by: Vec<Column>,
    /// The columns that are added up.
    pub(crate) needs: Needs,
}

/// A row group to be read.
struct Unit {
    segment: Arc<SegmentScan>,
    plan: GroupPlan,
}

/// The step of a scan.
enum Step<A> {
    /// The end of a segment, and the number of its row groups that cannot match.
    Segment { pruned: u64 },
    /// A segment that was left out because of a missing file.
    Missing(String),
    /// The groups of a row group.
    Rows(Arc<SegmentScan>, GroupPlan, Groups<A>),
}

/// The receiver of the sums of a scan.
pub(crate) trait Fold<A>: Send {
    /// The rows of a segment's other tables that its sums need.
    type Loaded: Send + 'static;

    /// Reads what the groups of a segment need, while further segments are scanned.
    fn load(&self, segment: &SegmentScan, groups: &Groups<A>) -> BoxFuture<'static, Result<Self::Loaded>>;

    /// Adds the groups of a segment.
    fn fold(&mut self, segment: &SegmentScan, groups: Groups<A>, loaded: Self::Loaded) -> Result<()>;
}

/// A segment whose row groups were all read.
struct Scanned<A, L> {
    segment: Arc<SegmentScan>,
    groups: Groups<A>,
    load: JoinHandle<Result<L>>,
}

/// The scanned segments that wait for their other tables.
struct Loading<'a, A, F: Fold<A>> {
    waiting: VecDeque<Scanned<A, F::Loaded>>,
    fold: &'a mut F,
    limit: usize,
}

impl<A: Accumulate, F: Fold<A>> Loading<'_, A, F> {
    /// Adds a segment, and waits for the first one if there are too many.
    async fn push(&mut self, segment: Arc<SegmentScan>, groups: Groups<A>) -> Result<()> {
        let load = tokio::spawn(self.fold.load(&segment, &groups));
        self.waiting.push_back(Scanned {
            segment,
            groups,
            load,
        });
        match self.waiting.len() > self.limit {
            true => self.next().await,
            false => Ok(()),
        }
    }

    /// Adds up the first segment.
    async fn next(&mut self) -> Result<()> {
        let Some(Scanned {
            segment,
            groups,
            load,
        }) = self.waiting.pop_front()
        else {
            return Ok(());
        };
        let loaded = load.await.map_err(|error| Error::System {
            action: "read a segment",
            reason: error.to_string(),
        })?;
        self.fold.fold(&segment, groups, loaded?)
    }

    async fn finish(mut self) -> Result<()> {
        while !self.waiting.is_empty() {
            self.next().await?;
        }
        Ok(())
    }
}

/// Scans segments in their order. `new` builds an accumulator for a group of a segment, and `fold`
/// receives the groups of each segment.
pub(crate) async fn scan<A: Accumulate, F: Fold<A>>(
    reader: &Arc<SegmentReader>,
    query: &Query,
    scan: Scan,
    segments: Vec<SegmentEntry>,
    new: impl Fn(&SegmentScan) -> A + Clone + Send + Sync + 'static,
    fold: &mut F,
) -> Result<Coverage> {
    let scan = Arc::new(scan);
    let services = scan.filter.services();
    let idle = segments.iter().map(|entry| entry.idle.of(services.as_deref()));
    let mut coverage = Coverage {
        segments: segments.len() as u64,
        idle: idle.fold(0, u64::saturating_add),
        ..Coverage::default()
    };
    let steps = steps(Arc::clone(reader), query.limits, scan, segments, new);
    let mut steps = std::pin::pin!(steps);
    let mut loading = Loading {
        waiting: VecDeque::new(),
        fold,
        limit: std::thread::available_parallelism().map_or(1, usize::from) * 2,
    };
    // The segment whose row groups are being added up.
    let mut current: Option<(Arc<SegmentScan>, Groups<A>)> = None;
    loop {
        if query.cancel.is_canceled() {
            return Err(Error::Canceled);
        }
        let present = Instant::now();
        if query.limits.deadline.is_some_and(|deadline| deadline <= present) {
            coverage.truncated = Some(LimitKind::Deadline);
            break;
        }
        let pause = present + CHECK_INTERVAL;
        let until = query
            .limits
            .deadline
            .map_or(pause, |deadline| deadline.min(pause));
        // A step that is not ready is not lost.
        let Ok(step) = tokio::time::timeout_at(until.into(), steps.try_next()).await else {
            continue;
        };
        let step = step?;
        match step {
            None => break,
            Some(Step::Segment { pruned }) => {
                coverage.row_groups_pruned += pruned;
                coverage.segments_read += 1;
            }
            Some(Step::Missing(key)) => coverage.missing.push(key),
            Some(Step::Rows(segment, plan, groups)) => {
                coverage.row_groups += 1;
                coverage.rows += plan.rows;
                coverage.bytes += plan.bytes;
                match &mut current {
                    Some((before, sums)) if before.entry.id == segment.entry.id => sums.add(groups)?,
                    _ => {
                        if let Some((before, sums)) = current.take() {
                            loading.push(before, sums).await?;
                        }
                        current = Some((segment, groups));
                    }
                }
                coverage.truncated = match () {
                    () if coverage.bytes >= query.limits.bytes => Some(LimitKind::Bytes),
                    () if coverage.rows >= query.limits.rows => Some(LimitKind::Rows),
                    () => None,
                };
                if coverage.truncated.is_some() {
                    break;
                }
            }
        }
    }
    if let Some((segment, sums)) = current {
        loading.push(segment, sums).await?;
    }
    loading.finish().await?;
    Ok(coverage)
}

/// Returns the steps of a scan, of which some are prepared in advance.
fn steps<A: Accumulate>(
    reader: Arc<SegmentReader>,
    limits: Limits,
    scan: Arc<Scan>,
    segments: Vec<SegmentEntry>,
    new: impl Fn(&SegmentScan) -> A + Clone + Send + Sync + 'static,
) -> impl Stream<Item = Result<Step<A>>> + Send {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = limits.memory / threads as u64;
    let opener = Arc::clone(&reader);
    let opened = stream::iter(segments)
        .map(move |entry| open(Arc::clone(&opener), Arc::clone(&scan), entry))
        .buffered(threads * 2);
    let units = opened.flat_map(move |opened| {
        let units = match opened {
            Ok(segment) => units(segment),
            Err(Error::Missing { key }) if limits.skip_missing => vec![Ok(Work::Missing(key))],
            Err(error) => vec![Err(error)],
        };
        stream::iter(units)
    });
    units
        .map(move |work| step(Arc::clone(&reader), work, new.clone(), memory))
        .buffered(threads + 1)
}

async fn open(reader: Arc<SegmentReader>, scan: Arc<Scan>, entry: SegmentEntry) -> Result<SegmentScan> {
    SegmentScan::open(&reader, scan, entry).await
}

/// Does the work of a step.
async fn step<A: Accumulate>(
    reader: Arc<SegmentReader>,
    work: Result<Work>,
    new: impl Fn(&SegmentScan) -> A + Send + Sync + 'static,
    memory: u64,
) -> Result<Step<A>> {
    match work? {
        Work::Segment { pruned } => Ok(Step::Segment { pruned }),
        Work::Missing(key) => Ok(Step::Missing(key)),
        Work::Unit(Unit { segment, plan }) => {
            let fetched = plan.fetch(&segment, &**reader.objects()).await?;
            blocking::run(move || {
                let groups = group::read(&segment, &plan, fetched, &new, memory)?;
                Ok(Step::Rows(segment, plan, groups))
            })
            .await
        }
    }
}

/// The work of a step.
enum Work {
    /// The end of a segment, and the number of its row groups that cannot match.
    Segment { pruned: u64 },
    /// A segment that is left out because of a missing file.
    Missing(String),
    /// A row group.
    Unit(Unit),
}

/// Returns the row groups of a segment that may match, and the number of the others.
fn units(segment: SegmentScan) -> Vec<Result<Work>> {
    let segment = Arc::new(segment);
    let mut work = Vec::new();
    let mut pruned = 0;
    for group in 0..segment.file.groups() {
        match GroupPlan::new(&segment, group) {
            Some(plan) => work.push(Ok(Work::Unit(Unit {
                segment: Arc::clone(&segment),
                plan,
            }))),
            None => pruned += 1,
        }
    }
    work.push(Ok(Work::Segment { pruned }));
    work
}
