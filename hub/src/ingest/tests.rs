//! Reports, states, samples and alerts against both databases.

mod alerts;
mod durability;
mod functions;
pub(crate) mod grouping;
mod lifecycle;
mod sampling;
mod time;

use super::entry::Entry;
use super::journal::Journal;
use super::outbox::Outbox;
use super::record::{Outcome, Recorded, Recorder};
use super::regroup::{self, Symbolized};
use super::samples;
use crate::clock;
use crate::database::reports::{self, BundleState};
use crate::database::tests::testing::TestDatabase;
use crate::database::{Database, groups, leases, stack_keys, transact};
use crate::grouping::cause::{CrashCause, CrashFacts};
use crate::notify::AlertChannel;
use crate::objects::Objects;
use crate::stack::Frame;
use backtrail_report::{AddressFrame, CrashReport, ReportId, VERSION};
use std::collections::BTreeMap;

/// The start of all times in these tests.
const START: i64 = 1_790_000_000 * clock::SECOND;

/// The channel of these tests.
pub(crate) fn channel(url: &str, per_hour: u32) -> AlertChannel {
    let text = format!(
        "name = 'hook'\nkind = 'webhook'\nurl = '{url}'\nper_hour = {per_hour}\n\
         events = ['new', 'first-in-build', 'regressed', 'escalating']"
    );
    toml::from_str(&text).unwrap()
}

/// A hub without HTTP.
pub(crate) struct TestHub {
    pub(crate) database: Database,
    pub(crate) objects: Objects,
    pub(crate) outbox: Outbox,
    journal: Journal<Recorder>,
}

impl TestHub {
    pub(crate) fn new(test: &TestDatabase) -> Self {
        let outbox = Outbox::new(
            "https://hub.example".to_owned(),
            &[channel("http://127.0.0.1:1/", 60)],
        );
        let objects = Objects::directory(&test.folder().join("objects")).unwrap();
        let recorder = Recorder::new(outbox.clone());
        Self {
            journal: Journal::start(test.database.clone(), objects.clone(), recorder, "a"),
            database: test.database.clone(),
            objects,
            outbox,
        }
    }

    /// Takes reports, and returns their outcomes.
    pub(crate) async fn take(&self, reports: Vec<CrashReport>) -> Vec<Recorded> {
        let entries = reports.into_iter().map(|report| Entry::Report {
            received: i64::try_from(report.time).unwrap() + clock::SECOND,
            report: Box::new(report),
        });
        let outcomes = self.journal.write(entries.collect()).await.unwrap();
        let recorded = outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Report(recorded) => recorded,
            Outcome::Noted => panic!("a report"),
        });
        recorded.collect()
    }

    /// Notes that a host runs a build since a time.
    pub(crate) async fn run(&self, host: &str, build: &str, since: i64) {
        let entry = Entry::Run {
            time: since,
            host: host.to_owned(),
            service: "ledger".to_owned(),
            build: build.to_owned(),
            since,
        };
        self.journal.write(vec![entry]).await.unwrap();
    }

    /// Stores the bundle of a report, whose innermost function is `function`, as `accept` does.
    pub(crate) async fn store(&self, report: &str, function: &str, now: i64) -> String {
        let symbolized = symbolized(function);
        let row = self.database.report(report).await.unwrap();
        let result: crate::Result<String> = transact!(self.database, connection => {
            leases::lock_counts(connection).await?;
            let from = [BundleState::None, BundleState::Wanted];
            reports::set_bundle(connection, report, &from, BundleState::Checking, None, None).await?;
            reports::set_stored(connection, report, "00", 1000).await?;
            let key = stack_keys::find(connection, &row.key).await?.unwrap();
            let moment = (now, "symbols");
            let group = regroup::regroup(connection, &self.outbox, &key, &symbolized, &row, moment).await?;
            samples::replace(connection, &group, &row, now).await?;
            groups::recount(connection, &group).await?;
            Ok(group)
        });
        result.unwrap()
    }

    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(self.database.reader())
            .await
            .unwrap()
    }

    /// Returns the events, in their order.
    pub(crate) async fn events(&self) -> Vec<String> {
        let select = "SELECT event FROM changes ORDER BY time, event";
        sqlx::query_scalar(select)
            .fetch_all(self.database.reader())
            .await
            .unwrap()
    }
}

/// Returns the identifier of a number.
pub(crate) fn id(number: u64) -> ReportId {
    format!("{number:020}").parse().unwrap()
}

/// Returns a crash at a place.
pub(crate) fn crash(number: u64, place: u64, build: &str, time: i64) -> CrashReport {
    CrashReport {
        version: VERSION,
        id: id(number),
        time: time.unsigned_abs(),
        host: format!("web-{}", number % 1000),
        service: "ledger".to_owned(),
        build: build.to_owned(),
        executable: "/srv/bank/ledger".to_owned(),
        signal: 11,
        code: 1,
        fault_address: Some(0x28),
        pid: 42,
        tid: 43,
        thread: Some("worker".to_owned()),
        kernel: None,
        cpu: None,
        labels: BTreeMap::from([("route".to_owned(), "/close".to_owned())]),
        frames: vec![AddressFrame {
            module: "ledger".to_owned(),
            build_id: Some("a1b2".to_owned()),
            offset: 0x1000 * place,
        }],
        frames_end: None,
        modules: Vec::new(),
        bundle_size: Some(1 << 20),
    }
}

/// Returns what an analysis says of a crash in a function.
pub(crate) fn symbolized(function: &str) -> Symbolized {
    let frames = vec![Frame {
        function: Some(function.to_owned()),
        module: Some("ledger".to_owned()),
        build_id: Some("a1b2".to_owned()),
        file: Some("ledger.c".to_owned()),
        line: Some(7),
        offset: Some(0x1000),
        ..Frame::default()
    }];
    let cause = CrashCause::of(&CrashFacts {
        signal: 11,
        code: 1,
        fault_address: Some(0x28),
        ..CrashFacts::default()
    });
    Symbolized {
        frames,
        cause,
        missing: Vec::new(),
    }
}
