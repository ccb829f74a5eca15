//! Files that are damaged, missing, or of others.

use crate::fixture::{Fixture, all, run};
use crate::round_trip::sample;
use backtrail_store::{Error, TableKind};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

/// Writes one segment, and returns the keys of its files.
async fn written(fixture: &Fixture) -> Vec<String> {
    let samples: Vec<_> = (0..200)
        .map(|number| sample(0, number, &[number as u8 % 40, 2, 3]))
        .collect();
    let entries = fixture.write(&samples).await;
    TableKind::ALL.map(|kind| entries[0].key(kind)).into()
}

async fn put(fixture: &Fixture, key: &str, content: Vec<u8>) {
    let payload = PutPayload::from(content);
    fixture.objects.put(&Path::from(key), payload).await.unwrap();
}

async fn get(fixture: &Fixture, key: &str) -> Vec<u8> {
    let found = fixture.objects.get(&Path::from(key)).await.unwrap();
    found.bytes().await.unwrap().to_vec()
}

#[test]
fn every_damaged_byte_is_an_error_or_changes_nothing() {
    run(async {
        let fixture = Fixture::default();
        let keys = written(&fixture).await;
        let (expected, _) = fixture.store().merge(&all(), &[]).await.unwrap();
        // The merge does not read the contexts.
        for key in &keys[..3] {
            let content = get(&fixture, key).await;
            let mut refused = 0;
            for place in (0..content.len()).step_by(7) {
                let mut damaged = content.clone();
                damaged[place] ^= 0x55;
                put(&fixture, key, damaged).await;
                match fixture.store().merge(&all(), &[]).await {
                    Ok((profile, _)) => assert_eq!(profile.samples, expected.samples, "{key} at {place}"),
                    Err(Error::Damaged { key: named, .. }) => {
                        assert_eq!(&named, key);
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(refused > content.len() / 7 / 3, "{key}: {refused}");
            put(&fixture, key, content).await;
        }
    });
}

#[test]
fn truncated_and_foreign_files_are_refused() {
    run(async {
        let fixture = Fixture::default();
        let keys = written(&fixture).await;
        let stacks = get(&fixture, &keys[1]).await;
        let samples = get(&fixture, &keys[0]).await;
        for content in [
            Vec::new(),
            b"PAR1".to_vec(),
            samples[..samples.len() / 2].to_vec(),
            stacks,
        ] {
            put(&fixture, &keys[0], content).await;
            let error = fixture.store().merge(&all(), &[]).await.unwrap_err();
            assert!(error.to_string().contains(&keys[0]), "{error}");
        }
    });
}

#[test]
fn missing_file_is_named_or_left_out_on_request() {
    run(async {
        let fixture = Fixture::default();
        let keys = written(&fixture).await;
        fixture.write(&[sample(1, 9, &[5])]).await;
        fixture.objects.delete(&Path::from(&*keys[0])).await.unwrap();
        let error = fixture.store().merge(&all(), &[]).await.unwrap_err();
        assert!(
            matches!(&error, Error::Missing { key } if *key == keys[0]),
            "{error}"
        );
        let mut query = all();
        query.limits.skip_missing = true;
        let (profile, coverage) = fixture.store().merge(&query, &[]).await.unwrap();
        assert_eq!(profile.samples.len(), 1);
        assert_eq!(coverage.missing, [keys[0].clone()]);
        assert!(!coverage.is_complete());
        assert!(profile.notes[0].contains("missing"), "{:?}", profile.notes);
    });
}
