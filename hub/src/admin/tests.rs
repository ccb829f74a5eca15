//! Retention, garbage collection, new indexes and backups on a hub without HTTP.

mod grouping;

use super::{backup, decisions, gc, rebuild, retention};
use crate::analysis::{Analysis, Cause, FrameView, Snapshot, StackView};
use crate::clock::{self, DAY, HOUR, SECOND};
use crate::config::{Limits, Retention};
use crate::database::jobs::JobQueue;
use crate::database::reports;
use crate::database::tests::testing::TestDatabase;
use crate::database::uploads::UploadKind;
use crate::database::{Database, groups, stack_keys, symbols, transact};
use crate::ingest::accept::store_rows;
use crate::ingest::act::act;
use crate::ingest::regroup::{self, Symbolized};
use crate::ingest::stored_crash::{self, StoredCrash, StoredModule};
use crate::ingest::tests::{TestHub, crash, id, symbolized};
use crate::ingest::upload::{self, Wish};
use crate::lifecycle::Action;
use crate::objects::{self, Objects};
use futures_util::TryStreamExt;
use std::collections::BTreeMap;

/// Returns an analysis of a crash in a function.
fn analysis(function: &str) -> Analysis {
    let frames = symbolized(function).frames.into_iter().map(|frame| FrameView {
        frame,
        ..FrameView::default()
    });
    Analysis {
        version: 1,
        program: None,
        cause: Cause {
            signal: 11,
            code: 1,
            fault_address: Some(0x28),
            ..Cause::default()
        },
        crashed: StackView {
            frames: frames.collect(),
            ..StackView::default()
        },
        threads: Vec::new(),
        more_threads: 0,
        source: None,
        calls: Vec::new(),
        lines: Vec::new(),
        before_lines: None,
        edges: Vec::new(),
        exact_calls: Vec::new(),
        branches: Vec::new(),
        gaps: Vec::new(),
        more_gaps: 0,
        modules: Vec::new(),
        timelines: Vec::new(),
        labels: BTreeMap::new(),
        resource: BTreeMap::new(),
        snapshot: Snapshot::default(),
        notes: Vec::new(),
        command_line: None,
    }
}

/// Stores a blob with some content.
async fn blob(hub: &TestHub, content: &str) -> (String, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blob");
    std::fs::write(&path, content).unwrap();
    hub.objects.put_file(&path).await.unwrap()
}

/// Stores the bundle of a report with all its objects. All bundles have one module in common.
async fn store(hub: &TestHub, number: u64, function: &str) -> String {
    let report = id(number).to_string();
    let row = hub.database.report(&report).await.unwrap();
    let (bundle, size) = blob(hub, &format!("bundle of {number}")).await;
    let (module, module_size) = blob(hub, "module").await;
    let stored = StoredCrash {
        report: serde_json::from_str(&row.report).unwrap(),
        received: row.received,
        stored: clock::now(),
        symbolized: None,
        reason: row.bundle_reason.clone(),
        bundle,
        size,
        modules: vec![StoredModule {
            path: "modules/ledger".to_owned(),
            build_id: "a1b2".to_owned(),
            sha256: module,
            size: module_size,
            is_verified: true,
            detail: 2,
        }],
    };
    let analysis = analysis(function);
    let text = serde_json::to_vec(&analysis).unwrap();
    hub.objects.put(&objects::analysis(&report), text).await.unwrap();
    stored.write(&hub.objects, &report).await.unwrap();
    let symbolized = Symbolized::of(&analysis);
    let group: crate::Result<String> = transact!(hub.database, connection => {
        store_rows(connection, &report, &stored).await?;
        let key = stack_keys::find(connection, &row.key).await?.unwrap();
        let moment = (clock::now(), "symbols");
        let group = regroup::regroup(connection, &hub.outbox, &key, &symbolized, &row, moment).await?;
        groups::recount(connection, &group).await?;
        Ok(group)
    });
    group.unwrap()
}

/// Returns all rows that an index has, without random identifiers and times of work.
async fn dump(database: &Database) -> Vec<String> {
    let mut lines = Vec::new();
    for query in [
        "SELECT 'report ' || id || ' ' || key || ' ' || time || ' ' || received || ' ' || host || ' ' || build \
         || ' ' || pinned || ' ' || segment || ' ' || report FROM reports ORDER BY 1",
        "SELECT 'bundle ' || id || ' ' || bundle_sha256 || ' ' || bundle_size || ' ' || bundle_reason \
         FROM reports WHERE bundle = 'stored' ORDER BY 1",
        "SELECT 'key ' || key || ' ' || group_id || ' ' || reports || ' ' || first_seen || ' ' || last_seen \
         || ' ' || addresses || COALESCE(frames, '-') || COALESCE(cause, '-') FROM stack_keys ORDER BY 1",
        "SELECT 'group ' || id || ' ' || title || ' ' || signature || ' ' || provisional || ' ' || reports || ' ' \
         || hosts || ' ' || bundles || ' ' || first_seen || ' ' || last_seen || ' ' || first_build || ' ' \
         || last_build || ' ' || state || ' ' || COALESCE(state_detail, '') || ' ' || COALESCE(assignee, '') \
         FROM groups ORDER BY 1",
        "SELECT 'word ' || group_id || ' ' || word FROM group_words ORDER BY 1",
        "SELECT 'hour ' || group_id || ' ' || build || ' ' || hour || ' ' || reports FROM group_hours ORDER BY 1",
        "SELECT 'key hour ' || key || ' ' || build || ' ' || hour || ' ' || reports FROM key_hours ORDER BY 1",
        "SELECT 'host ' || group_id || ' ' || host || ' ' || reports || ' ' || last_seen FROM group_hosts ORDER BY 1",
        "SELECT 'build ' || service || ' ' || build || ' ' || COALESCE(first_ran, 0) || ' ' || COALESCE(first_reported, 0) \
         FROM builds ORDER BY 1",
        "SELECT 'blob ' || sha256 || ' ' || size FROM blobs ORDER BY 1",
        "SELECT 'use ' || report || ' ' || path || ' ' || sha256 FROM report_blobs ORDER BY 1",
        "SELECT 'file ' || build_id || ' ' || kind || ' ' || sha256 || ' ' || name FROM build_files ORDER BY 1",
        "SELECT 'move ' || key || ' ' || from_group || ' ' || to_group || ' ' || reason FROM key_moves ORDER BY 1",
        "SELECT 'change ' || once FROM changes ORDER BY 1",
        "SELECT 'comment ' || group_id || ' ' || text FROM comments ORDER BY 1",
        "SELECT 'audit ' || actor || ' ' || action || ' ' || subject FROM audit ORDER BY 1",
    ] {
        let rows: Vec<String> = sqlx::query_scalar(query)
            .fetch_all(database.reader())
            .await
            .unwrap();
        assert!(!rows.is_empty() || query.contains("comment"), "{query}");
        lines.extend(rows);
    }
    lines
}

/// Returns the rows of some kinds.
async fn dump_of(database: &Database, kinds: &[&str]) -> Vec<String> {
    let is_kept = |line: &String| kinds.iter().any(|kind| line.starts_with(kind));
    dump(database).await.into_iter().filter(is_kept).collect()
}

/// Fills a hub: two groups with moved keys, one that keeps its addresses, and decisions.
async fn fill(hub: &TestHub, now: i64) {
    hub.run("web-1", "1.0", now - 90 * HOUR).await;
    hub.run("web-1", "2.0", now - 80 * HOUR).await;
    for number in 0..60_u64 {
        let build = if number < 30 { "1.0" } else { "2.0" };
        let time = now - (60 - number as i64) * HOUR;
        hub.take(vec![crash(number, number % 4, build, time)]).await;
    }
    // Two keys have one function, one has another, and one stays with its addresses.
    for (number, function) in [(0, "audit"), (1, "audit"), (2, "close_account"), (4, "audit")] {
        store(hub, number, function).await;
    }
    let report = hub.database.report(id(2).as_str()).await.unwrap();
    let group = hub.database.group_of_key(&report.key).await.unwrap();
    hub.database.assign_group(&group, Some("ada")).await.unwrap();
    hub.database.pin_report(id(1).as_str(), true).await.unwrap();
    let action = Action::Resolve {
        build: Some("3.0".to_owned()),
    };
    act(&hub.database, &hub.outbox, &group, &action, "ada")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilt_index_equals_the_index() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        fill(&hub, clock::now()).await;
        let added: crate::Result<()> = transact!(test.database, connection => {
            for insert in [
                "INSERT INTO query_job_runs (id, job, origin, started, state, value, row_count, result) \
                 VALUES ('r', 'j', 'schedule', 1, 'done', '2.5', 3, '{}')",
                "INSERT INTO profile_requests (id, host, event, frequency, seconds, creator, created) \
                 VALUES ('p', 'web-1', 'cpu', 99, 10, 'ada', 1)",
                "INSERT INTO profile_agents (host, seen) VALUES ('web-1', 7)",
            ] {
                sqlx::query(insert).execute(&mut *connection).await?;
            }
            Ok(())
        });
        added.unwrap();
        let before = dump(&test.database).await;
        let jobs = test.database.job_count().await.unwrap();
        test.database.close().await;
        let rebuilt = rebuild::run(&test.address, test.folder(), &hub.objects)
            .await
            .unwrap();
        assert_eq!((rebuilt.bundles, rebuilt.broken, rebuilt.damaged), (4, 0, 0));
        let database = Database::open(&test.address).await.unwrap();
        let after = dump(&database).await;
        for (old, new) in before.iter().zip(&after) {
            assert_eq!(old, new, "{}", test.name());
        }
        assert_eq!(before.len(), after.len());
        // Groups that were not announced yet will be.
        assert_eq!(database.job_count().await.unwrap(), jobs, "{}", test.name());
        let kept = "SELECT (SELECT COUNT(*) FROM query_job_runs WHERE value = '2.5') \
                    + (SELECT COUNT(*) FROM profile_requests) + (SELECT COUNT(*) FROM profile_agents)";
        let kept: i64 = sqlx::query_scalar(kept)
            .fetch_one(database.reader())
            .await
            .unwrap();
        assert_eq!(kept, 3, "{}", test.name());
        database.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn index_is_rebuilt_without_the_old_one() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    fill(&hub, clock::now()).await;
    let kept = |lines: Vec<String>| -> Vec<String> {
        let decided = ["group ", "audit ", "change ", "comment "];
        let is_kept = |line: &String| !decided.iter().any(|name| line.starts_with(name));
        lines.into_iter().filter(is_kept).collect()
    };
    let before = dump(&test.database).await;
    let pinned = id(1).to_string();
    test.database.close().await;
    std::fs::write(test.folder().join("hub.db"), "no database").unwrap();
    let _ = std::fs::remove_file(test.folder().join("hub.db-wal"));
    rebuild::run(&test.address, test.folder(), &hub.objects)
        .await
        .unwrap();
    let database = Database::open(&test.address).await.unwrap();
    database.pin_report(&pinned, true).await.unwrap();
    database.log_action("ada", "open", "x").await.unwrap();
    assert_eq!(kept(dump(&database).await), kept(before));
    database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_equals_the_hub() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        fill(&hub, clock::now()).await;
        let before = dump(&test.database).await;
        let directory = test.folder().join("backup");
        let copied = backup::backup(&test.database, &hub.objects, &directory)
            .await
            .unwrap();
        assert!(copied.objects > 60, "{copied:?}");
        let again = backup::backup(&test.database, &hub.objects, &directory)
            .await
            .unwrap();
        assert_eq!(again.known, 5, "{}", test.name());
        let error = backup::restore(&test.address, test.folder(), &hub.objects, &directory)
            .await
            .unwrap_err();
        assert!(
            error.to_string().starts_with("this hub has data already"),
            "{error}"
        );

        let other = TestDatabase::sqlite().await;
        let objects = Objects::directory(&other.folder().join("objects")).unwrap();
        other.database.close().await;
        backup::restore(&other.address, other.folder(), &objects, &directory)
            .await
            .unwrap();
        let database = Database::open(&other.address).await.unwrap();
        let after = dump(&database).await;
        for (old, new) in before.iter().zip(&after) {
            assert_eq!(old, new, "{}", test.name());
        }
        assert_eq!(before.len(), after.len());
        database.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_reports_go_and_pinned_ones_stay() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let now = clock::now();
        fill(&hub, now).await;
        let days = Retention { days: 1, gib: 500 };
        let removed = retention::run(&hub.database, &hub.objects, &days, now)
            .await
            .unwrap();
        // Hours 60 to 25 before now are over, but for the pinned report.
        assert!((34..=36).contains(&removed.reports), "{removed:?}");
        assert_eq!(removed.bundles, 0);
        let left = hub.count("SELECT COUNT(*) FROM reports").await;
        assert_eq!(left, 60 - removed.reports as i64);
        let counted = "SELECT CAST(SUM(reports) AS BIGINT) FROM groups";
        assert_eq!(hub.count(counted).await, left, "{}", test.name());
        let hours = "SELECT CAST(SUM(reports) AS BIGINT) FROM group_hours";
        assert_eq!(hub.count(hours).await, left);
        assert_eq!(
            hub.count("SELECT CAST(SUM(bundles) AS BIGINT) FROM groups").await,
            1
        );
        assert!(hub.database.has_report(id(1).as_str()).await.unwrap());
        // First runs of builds still order them.
        assert_eq!(
            hub.count("SELECT COUNT(*) FROM builds WHERE first_ran IS NOT NULL")
                .await,
            2
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn journal_of_expired_reports_is_shortened() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let now = clock::now();
        fill(&hub, now).await;
        // All but the pinned report are over, as if seen in 100 days.
        let days = Retention { days: 90, gib: 500 };
        let later = now + 100 * DAY;
        let removed = retention::run(&hub.database, &hub.objects, &days, later)
            .await
            .unwrap();
        assert_eq!(removed.reports, 59, "{}", test.name());
        assert_eq!(hub.count("SELECT COUNT(*) FROM reports").await, 1);
        // Blobs without a use are garbage, which an index from the objects does not have.
        let much_later = later + 2 * HOUR;
        for time in [later, much_later] {
            gc::run(&hub.database, &hub.objects, test.folder(), time)
                .await
                .unwrap();
        }
        // A resolved group is kept without reports, and a build without its first one.
        let empty = "SELECT COUNT(*) FROM groups WHERE reports = 0 AND state = 'resolved'";
        assert_eq!(hub.count(empty).await, 1);
        let kinds = [
            "report ", "blob ", "use ", "file ", "build ", "group ", "key ", "word ",
        ];
        let before = dump_of(&test.database, &kinds).await;
        test.database.close().await;
        rebuild::run(&test.address, test.folder(), &hub.objects)
            .await
            .unwrap();
        let database = Database::open(&test.address).await.unwrap();
        let after = dump_of(&database, &kinds).await;
        assert_eq!(after, before, "{}", test.name());
        database.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_bundles_go_when_there_is_no_room() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let now = clock::now();
        fill(&hub, now).await;
        let none = Retention { days: 90, gib: 0 };
        let removed = retention::run(&hub.database, &hub.objects, &none, now)
            .await
            .unwrap();
        assert_eq!((removed.reports, removed.bundles), (0, 3), "{}", test.name());
        let stored = "SELECT COUNT(*) FROM reports WHERE bundle = 'stored' AND pinned = 1";
        assert_eq!(hub.count(stored).await, 1);
        // Three bundles are garbage. The module is used by the pinned one.
        let later = now + 2 * DAY;
        let run = async |time| {
            gc::run(&hub.database, &hub.objects, test.folder(), time)
                .await
                .unwrap()
        };
        assert_eq!(run(now).await.blobs, 0);
        assert_eq!(run(later).await.blobs, 0);
        assert_eq!(run(later + 2 * HOUR).await.blobs, 3);
        assert_eq!(run(later + 4 * HOUR).await.blobs, 0);
        assert_eq!(hub.count("SELECT COUNT(*) FROM blobs").await, 2);
        assert_eq!(hub.count("SELECT COUNT(*) FROM garbage").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_blobs_are_kept() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let (sha256, size) = blob(&hub, "module").await;
        let later = clock::now() + 2 * DAY;
        let run = async |time| {
            gc::run(&hub.database, &hub.objects, test.folder(), time)
                .await
                .unwrap()
        };
        assert_eq!(run(later).await.blobs, 0);
        let hour = |hours: i64| later + hours * HOUR;
        let reserve = async |until: i64| hub.database.reserve_blob(&sha256, until).await;
        reserve(hour(5)).await.unwrap();
        // A shorter reservation ends none.
        reserve(hour(1)).await.unwrap();
        for hours in [2, 4] {
            assert_eq!(run(hour(hours)).await.blobs, 0, "{}", test.name());
        }
        // A deletion that began refuses the reservation until it ends.
        let doom = async |now: i64| hub.database.doom_blob(&sha256, now, now - HOUR).await.unwrap();
        assert!(!doom(hour(6)).await);
        assert!(doom(hour(8)).await);
        assert!(!doom(hour(8)).await);
        let error = reserve(hour(9)).await.unwrap_err().to_string();
        assert!(error.ends_with("is being deleted; try again"), "{error}");
        assert_eq!(run(hour(8)).await.blobs, 0);
        assert_eq!(run(hour(9)).await.blobs, 1);
        reserve(hour(20)).await.unwrap();
        assert_eq!(
            hub.objects.size(&objects::blob(&sha256)).await.unwrap(),
            None,
            "{size}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_without_a_row_go_after_a_day() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    hub.take(vec![crash(1, 1, "1.0", clock::now())]).await;
    store(&hub, 1, "audit").await;
    let gone = id(2).to_string();
    hub.objects.put(&objects::crash(&gone), "{}").await.unwrap();
    hub.objects
        .put(&objects::part("upload", "part"), "part")
        .await
        .unwrap();
    let run = async |time| {
        gc::run(&hub.database, &hub.objects, test.folder(), time)
            .await
            .unwrap()
    };
    let young = run(clock::now() + HOUR).await;
    assert_eq!((young.crashes, young.parts), (0, 0));
    let old = run(clock::now() + DAY + SECOND).await;
    assert_eq!((old.crashes, old.parts, old.blobs), (1, 1, 0));
    assert!(
        hub.objects
            .size(&objects::crash(id(1).as_str()))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_decisions_change_nothing() {
    let test = TestDatabase::sqlite().await;
    let good = r#"{"table":"audit","row":{"id":"a","time":1,"actor":"ada","action":"open","subject":"x"}}"#;
    for bad in ["{", r#"{"table":"hosts","row":{}}"#, r#"{"table":"audit"}"#] {
        let error = decisions::import(&test.database, &format!("{good}\n{bad}\n"))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "line 2 of the decisions is malformed");
    }
    assert!(test.database.audit(10).await.unwrap().is_empty());
    assert_eq!(decisions::import(&test.database, good).await.unwrap(), 1);
    assert_eq!(test.database.audit(10).await.unwrap()[0].actor, "ada");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_of_a_report_needs_no_bundle() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    hub.take(vec![crash(1, 1, "1.0", clock::now())]).await;
    // A bundle whose blobs are lost is not stored in the new index.
    store(&hub, 1, "audit").await;
    let (bundle, _) = blob(&hub, "bundle of 1").await;
    hub.objects.delete(&objects::blob(&bundle)).await.unwrap();
    test.database.close().await;
    let rebuilt = rebuild::run(&test.address, test.folder(), &hub.objects)
        .await
        .unwrap();
    assert_eq!((rebuilt.bundles, rebuilt.broken), (0, 1));
    let database = Database::open(&test.address).await.unwrap();
    let done: crate::Result<Option<reports::ReportRow>> =
        transact!(database, connection => { reports::find(connection, id(1).as_str()).await });
    assert_eq!(done.unwrap().unwrap().bundle_sha256, None);
    database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_removed_bundles_is_rebuilt() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let now = clock::now();
        fill(&hub, now).await;
        let time = now - HOUR;
        stored_crash::note_symbols(&hub.objects, id(0).as_str(), time)
            .await
            .unwrap();
        let noted: crate::Result<()> = transact!(hub.database, connection => {
            symbols::set_symbolized(connection, id(0).as_str(), time).await
        });
        noted.unwrap();
        let none = Retention { days: 90, gib: 0 };
        let removed = retention::run(&hub.database, &hub.objects, &none, now)
            .await
            .unwrap();
        assert_eq!(removed.bundles, 3);
        // A hub that ended before it noted the removal left the other description.
        let (old, new) = (
            objects::crash(id(2).as_str()),
            objects::removed_crash(id(2).as_str()),
        );
        let text = hub.objects.get(&new).await.unwrap().unwrap();
        hub.objects.put(&old, text).await.unwrap();
        hub.objects.delete(&new).await.unwrap();
        let later = clock::now() + 2 * DAY;
        for time in [later, later + 2 * HOUR] {
            gc::run(&hub.database, &hub.objects, test.folder(), time)
                .await
                .unwrap();
        }
        assert!(hub.objects.get(&new).await.unwrap().is_some());
        assert!(hub.objects.get(&old).await.unwrap().is_none());
        let before = dump(&test.database).await;
        test.database.close().await;
        let rebuilt = rebuild::run(&test.address, test.folder(), &hub.objects)
            .await
            .unwrap();
        assert_eq!((rebuilt.bundles, rebuilt.broken), (1, 0));
        let database = Database::open(&test.address).await.unwrap();
        assert_eq!(dump(&database).await, before, "{}", test.name());
        assert_eq!(database.symbolized(id(0).as_str()).await.unwrap(), Some(time));
        let row = database.report(id(2).as_str()).await.unwrap();
        assert_eq!(row.bundle, reports::BundleState::Removed);
        database.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_on_its_way_outlives_a_new_index() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![
            crash(1, 1, "1.0", clock::now()),
            crash(2, 2, "1.0", clock::now()),
        ])
        .await;
        let limits = Limits::default();
        let mut uploads = Vec::new();
        for (number, bytes) in [(1, "whole"), (2, "par")] {
            let subject = id(number).to_string();
            let wish = Wish {
                kind: UploadKind::Bundle,
                subject: &subject,
                sha256: &"0".repeat(64),
                length: 5,
                token: "web-1",
            };
            let begun = upload::begin(&hub.database, &limits, &wish).await.unwrap();
            let body = futures_util::stream::iter([Ok::<_, std::io::Error>(bytes.into())]);
            let added = upload::add(&hub.database, &hub.objects, begun, 0, body).await;
            uploads.push(added.unwrap());
        }
        test.database.close().await;
        rebuild::run(&test.address, test.folder(), &hub.objects)
            .await
            .unwrap();
        let database = Database::open(&test.address).await.unwrap();
        for upload in &uploads {
            assert_eq!(
                database.upload(&upload.id).await.unwrap(),
                *upload,
                "{}",
                test.name()
            );
            assert_eq!(database.part_names(&upload.id).await.unwrap().len(), 1);
        }
        let state = async |number| database.report(id(number).as_str()).await.unwrap().bundle;
        assert_eq!(state(1).await, reports::BundleState::Checking);
        assert_eq!(state(2).await, reports::BundleState::Wanted);
        let accept = "SELECT COUNT(*) FROM jobs WHERE kind = 'accept'";
        let jobs: i64 = sqlx::query_scalar(accept)
            .fetch_one(database.reader())
            .await
            .unwrap();
        assert_eq!(jobs, 1);
        database.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promised_modules_are_kept_until_the_bundle_comes() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let now = clock::now();
        fill(&hub, now).await;
        let run = async |time| {
            gc::run(&hub.database, &hub.objects, test.folder(), time)
                .await
                .unwrap()
        };
        // All reports go, and no row uses the module any more.
        hub.database.pin_report(id(1).as_str(), false).await.unwrap();
        let days = Retention { days: 90, gib: 500 };
        let later = now + 100 * DAY;
        retention::run(&hub.database, &hub.objects, &days, later)
            .await
            .unwrap();
        assert_eq!(run(later).await.blobs, 0);
        // A sender leaves it out, as the answer says.
        let missing = async |until| {
            hub.database
                .missing_executables(&["a1b2", "c3d4"], until)
                .await
                .unwrap()
        };
        assert_eq!(missing(later + DAY).await, ["c3d4"], "{}", test.name());
        let (module, _) = blob(&hub, "module").await;
        let _ = run(later + 2 * HOUR).await;
        let key = objects::blob(&module);
        assert!(hub.objects.size(&key).await.unwrap().is_some());
        assert_eq!(missing(later).await, ["c3d4"]);
        // Afterward it is garbage, and wanted again.
        for hours in [26, 28] {
            let _ = run(later + hours * HOUR).await;
        }
        assert!(hub.objects.size(&key).await.unwrap().is_none());
        assert_eq!(missing(later).await, ["a1b2", "c3d4"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_chunks_are_removed() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        for (name, lifetime) in [("old", -2 * HOUR), ("young", HOUR)] {
            hub.objects.put(&objects::chunk(name), name).await.unwrap();
            hub.database.note_chunk(name, 3, lifetime).await.unwrap();
        }
        hub.objects.put(&objects::chunk("stray"), "stray").await.unwrap();
        let run = async |time| {
            let done = gc::run(&hub.database, &hub.objects, test.folder(), time).await;
            done.unwrap().chunks
        };
        assert_eq!(run(clock::now()).await, 1, "{}", test.name());
        assert!(
            hub.objects
                .size(&objects::chunk("young"))
                .await
                .unwrap()
                .is_some()
        );
        // The other one, and the object without a row.
        assert_eq!(run(clock::now() + 2 * DAY).await, 2);
        assert_eq!(run(clock::now() + 2 * DAY).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn complete_uploads_end_with_their_job() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![crash(1, 1, "1.0", clock::now())]).await;
        let subject = id(1).to_string();
        let wish = Wish {
            kind: UploadKind::Bundle,
            subject: &subject,
            sha256: &"0".repeat(64),
            length: 1,
            token: "web-1",
        };
        let begun = upload::begin(&hub.database, &Limits::default(), &wish)
            .await
            .unwrap();
        let body = futures_util::stream::iter([Ok::<_, std::io::Error>("x".into())]);
        let whole = upload::add(&hub.database, &hub.objects, begun, 0, body)
            .await
            .unwrap();
        let later = clock::now() + 3 * DAY;
        let run = async || {
            let done = gc::run(&hub.database, &hub.objects, test.folder(), later).await;
            done.unwrap().uploads
        };
        // Its check may take days, if the hub has no room.
        assert_eq!(run().await, 0, "{}", test.name());
        let job = hub.database.lease_job(JobQueue::Work).await.unwrap().unwrap();
        assert_eq!(job.subject, whole.id);
        hub.database.finish_job(&job).await.unwrap();
        assert_eq!(run().await, 1);
        let parts: Vec<_> = hub.objects.list("uploads").try_collect().await.unwrap();
        assert!(parts.is_empty(), "{parts:?}");
    }
}
