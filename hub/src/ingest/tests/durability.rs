//! Several hubs at once: uploads, segments of the journal, and exact counts.

use super::{START, TestHub, crash, id};
use crate::clock::{self, SECOND};
use crate::config::Limits;
use crate::database::tests::testing::TestDatabase;
use crate::database::uploads::{Upload, UploadKind};
use crate::error::Result;
use crate::ingest::entry::{Entry, to_lines};
use crate::ingest::journal::{self, Apply};
use crate::ingest::record::Recorder;
use crate::ingest::upload::{self, Wish};
use futures_util::stream;
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime};

/// Adds bytes to an upload, as a request does.
async fn add(hub: &TestHub, upload: &Upload, bytes: &'static str) -> Result<Upload> {
    let body = stream::iter([Ok::<_, std::io::Error>(bytes.into())]);
    let offset = upload.received.unsigned_abs();
    upload::add(&hub.database, &hub.objects, upload.clone(), offset, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn late_request_does_not_replace_a_confirmed_part() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![crash(1, 1, "1.0", START)]).await;
        let subject = id(1).to_string();
        let wish = Wish {
            kind: UploadKind::Bundle,
            subject: &subject,
            sha256: &crate::objects::hexadecimal(&Sha256::digest("whole bundle")),
            length: 12,
            token: "web-1",
        };
        let begun = upload::begin(&hub.database, &Limits::default(), &wish)
            .await
            .unwrap();
        let after = add(&hub, &begun, "whole ").await.unwrap();
        // A hub whose sender gave up on it read the row before, and got less.
        let error = add(&hub, &begun, "who").await.unwrap_err().to_string();
        assert!(error.contains("another request continued this upload"), "{error}");
        let whole = add(&hub, &after, "bundle").await.unwrap();
        assert!(whole.is_complete);
        let path = test.folder().join("assembled");
        upload::assemble(&hub.database, &hub.objects, &whole, &path)
            .await
            .unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "whole bundle",
            "{}",
            test.name()
        );
        // The object of the late request goes too.
        upload::remove(&hub.database, &hub.objects, &whole).await.unwrap();
        let left = std::fs::read_dir(test.folder().join("objects/uploads").join(&whole.id));
        assert_eq!(left.unwrap().count(), 0);
        assert!(hub.database.part_names(&whole.id).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_exact_beside_regroupings() {
    for test in TestDatabase::all().await {
        let hubs = [TestHub::new(&test), TestHub::new(&test)];
        hubs[0]
            .take((0..4).map(|number| crash(number, number, "1.0", START)).collect())
            .await;
        let take = async |hub: &TestHub, offset: u64| {
            for batch in 0..12 {
                let first = offset + 100 * batch;
                let reports = (first..first + 20).map(|number| crash(number, number % 4, "1.0", START));
                hub.take(reports.collect()).await;
            }
        };
        let regroup = async {
            for round in 0..12 {
                let function = if round % 2 == 0 { "audit" } else { "post" };
                for number in 0..4 {
                    let _ = hubs[1].store(id(number).as_str(), function, START + SECOND).await;
                }
            }
        };
        tokio::join!(take(&hubs[0], 10_000), take(&hubs[1], 20_000), regroup);
        let hub = &hubs[0];
        let reports = hub.count("SELECT COUNT(*) FROM reports").await;
        assert_eq!(reports, 4 + 2 * 12 * 20, "{}", test.name());
        for sum in [
            "SELECT CAST(SUM(reports) AS BIGINT) FROM groups",
            "SELECT CAST(SUM(reports) AS BIGINT) FROM stack_keys",
            "SELECT CAST(SUM(reports) AS BIGINT) FROM key_hours",
            "SELECT CAST(SUM(reports) AS BIGINT) FROM group_hours",
            "SELECT CAST(SUM(reports) AS BIGINT) FROM group_hosts",
        ] {
            assert_eq!(hub.count(sum).await, reports, "{}: {sum}", test.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn report_in_two_segments_has_the_first_one() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    let recorder = Recorder::new(hub.outbox.clone());
    let entry = |received| Entry::Report {
        received,
        report: Box::new(crash(1, 1, "1.0", START)),
    };
    for (segment, received) in [("000002/00/b", 9), ("000002/00/c", 12), ("000001/00/a", 5)] {
        let mut transaction = hub.database.begin().await.unwrap();
        let _ = recorder
            .apply(&mut transaction, &entry(received), segment)
            .await
            .unwrap();
        transaction.commit().await.unwrap();
    }
    let row = hub.database.report(id(1).as_str()).await.unwrap();
    assert_eq!((row.segment.as_str(), row.received), ("000001/00/a", 5));
    assert_eq!(
        hub.count("SELECT CAST(SUM(reports) AS BIGINT) FROM groups").await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn segment_of_an_ended_hub_is_applied_by_another() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let recorder = Recorder::new(hub.outbox.clone());
        let now = clock::now();
        let (day, hour) = (now.div_euclid(clock::DAY), now.div_euclid(clock::HOUR) % 24);
        let key = journal::key(&format!("{day:06}/{hour:02}/{now:018}-ended-1.jsonl"));
        let lines = to_lines(&[Entry::Report {
            received: now,
            report: Box::new(crash(1, 1, "1.0", now)),
        }]);
        hub.objects.put(&key, lines).await.unwrap();
        let replay = async || {
            journal::replay_recent(&hub.database, &hub.objects, &recorder)
                .await
                .unwrap()
        };
        // Its hub may still be about to commit it.
        assert_eq!(replay().await, 0);
        let file = std::fs::File::options()
            .append(true)
            .open(test.folder().join("objects").join(&key))
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(300))
            .unwrap();
        assert_eq!((replay().await, replay().await), (1, 0), "{}", test.name());
        assert!(hub.database.has_report(id(1).as_str()).await.unwrap());
    }
}
