//! A hub whose objects are in a bucket of S3.

use super::bucket::{Bucket, Site};
use super::fleet::{Fleet, check_whole, index, push};
use super::server::check_push;
use std::fs;
use std::path::Path;

/// Returns the servers of this machine.
fn buckets() -> Vec<(&'static str, Bucket)> {
    let mut all = vec![("s3s-fs", Bucket::s3s())];
    all.extend(Bucket::moto().map(|bucket| ("moto", bucket)));
    all
}

#[test]
fn pushed_crash_is_whole_in_a_bucket() {
    for (name, bucket) in buckets() {
        let folder = tempfile::tempdir().unwrap();
        let site = Site::new(folder.path(), name, bucket.address, "");
        let token = site.token(&["ingest", "read"]);
        check_push(&token, &|| site.start());
        assert!(!site.data.join("objects").exists());
    }
}

#[test]
fn bucket_is_backed_up_restored_and_indexed_again() {
    let (bucket, other) = (Bucket::s3s(), Bucket::s3s());
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new(folder.path(), "first", bucket.address, "");
    let token = site.token(&["ingest", "read"]);
    let hub = site.start();
    let mut fleet = Fleet::new();
    let ids: Vec<String> = (0..3)
        .map(|_| {
            let bundle = fleet.bundle();
            push(fleet.user(), &hub.address, &token, &bundle).unwrap()
        })
        .collect();
    check_whole(&hub, &token, &ids);
    let before = index(&hub, &token);
    // The hub runs during the backup.
    let backup = folder.path().join("backup");
    let done = site.done(&["backup", backup.to_str().unwrap()]);
    assert!(done.contains("copied "), "{done}");
    drop(hub);

    let done = site.done(&["rebuild-index"]);
    assert!(done.contains("the index has 3 bundles"), "{done}");
    let hub = site.start();
    assert_eq!(index(&hub, &token), before);
    drop(hub);

    let done = site.done(&["gc"]);
    assert!(done.contains("0 blobs"), "{done}");
    let new = Site::new(folder.path(), "second", other.address, "");
    let done = new.done(&["restore", backup.to_str().unwrap()]);
    assert!(done.contains("restored "), "{done}");
    let hub = new.start();
    assert_eq!(index(&hub, &token), before);
    check_whole(&hub, &token, &ids);
    drop(hub);
    let refused = new.run(&["restore", backup.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("this hub has data already"), "{text}");
}

/// Returns the last line of the standard error of a hub that cannot start.
#[track_caller]
fn refusal(site: &Site) -> String {
    let output = site.run(&["token", "tests", "--scope", "read"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = text.lines().last().unwrap_or_default().to_owned();
    assert!(!last.contains('<') && last.len() < 400, "{text}");
    last
}

#[test]
fn failures_of_a_bucket_are_one_sentence() {
    let bucket = Bucket::s3s();
    let folder = tempfile::tempdir().unwrap();
    let site = |name: &str| Site::new(folder.path(), name, bucket.address, "");

    let mut keyless = site("keyless");
    keyless.environment.clear();
    let text = refusal(&keyless);
    assert!(
        text.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        "{text}"
    );

    for (at, value) in [(1, "wrong"), (0, "nobody")] {
        let mut wrong = site("wrong");
        wrong.environment[at].1 = value.to_owned();
        let text = refusal(&wrong);
        assert!(text.contains("the server refuses the keys"), "{text}");
    }

    let absent = site("absent");
    edit(&absent.config, "s3://crashes/hub", "s3://absent");
    let text = refusal(&absent);
    assert!(text.contains("the server has no such bucket"), "{text}");

    let plain = site("plain");
    edit(&plain.config, "allow_http = true", "allow_http = false");
    let text = refusal(&plain);
    assert!(text.contains("has no TLS"), "{text}");

    let malformed = site("malformed");
    edit(&malformed.config, "s3://crashes/hub", "crashes");
    let text = refusal(&malformed);
    assert!(text.contains("is no bucket; use s3://BUCKET/PREFIX"), "{text}");
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).unwrap();
}
