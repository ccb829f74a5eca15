//! Tests of the spool.

use super::*;
use backtrail_bundle::manifest::Manifest;
use backtrail_bundle::manifest::Meta;
use backtrail_pt::TimingParams;

fn manifest() -> Manifest {
    Manifest {
        cpu: backtrail_process::machine::cpu_model(),
        timing: TimingParams::default(),
        tsc: None,
        filters: Vec::new(),
        processes: Vec::new(),
        cpus: Vec::new(),
        core: None,
        meta: Meta {
            program: Some("/bin/worker".to_owned()),
            ..Meta::default()
        },
    }
}

fn add(spool: &Spool, name: &str, bytes: usize) -> String {
    let draft = spool.begin(name, 7).unwrap();
    let path = backtrail_bundle::BundlePath::new("core").unwrap();
    draft.writer.add_bytes(&path, &vec![7; bytes]).unwrap();
    draft.writer.finish_durably(&manifest()).unwrap();
    draft.id
}

fn ids(spool: &Spool) -> Vec<String> {
    spool
        .entries()
        .unwrap()
        .into_iter()
        .map(|stored| stored.id)
        .collect()
}

#[test]
fn numbers_increase_and_names_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(1 << 30), Size(0)).unwrap();
    assert!(spool.find("latest").is_err());
    let first = add(&spool, "worker/0", 10);
    let second = add(&spool, "other", 10);
    assert_eq!([&*first, &*second], ["000001-worker_0-7", "000002-other-7"]);
    assert_eq!(ids(&spool), [first.clone(), second.clone()]);
    for (asked, expected) in [
        ("latest", &second),
        ("1", &first),
        ("000002", &second),
        ("000001-w", &first),
    ] {
        assert_eq!(&spool.find(asked).unwrap().id, expected);
    }
    assert!(matches!(
        spool.find("00000"),
        Err(Error::Ambiguous { count: 2, .. })
    ));
    assert!(matches!(spool.find("9"), Err(Error::NoSuchCrash { .. })));
    let stored = spool.find("1").unwrap();
    assert_eq!(stored.executable.as_deref(), Some("/bin/worker"));
    spool.remove(&stored).unwrap();
    // A reopened spool continues the numbering.
    let again = Spool::create(folder.path(), Size(1 << 30), Size(0)).unwrap();
    assert_eq!(add(&again, "x", 1), "000003-x-7");
}

#[test]
fn oldest_bundles_are_removed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(400_000), Size(0)).unwrap();
    for _ in 0..6 {
        add(&spool, "x", 100_000);
        spool.make_room().unwrap();
    }
    assert_eq!(ids(&spool), ["000004-x-7", "000005-x-7", "000006-x-7"]);
    assert_eq!(spool.dropped(), 3);
    add(&spool, "big", 1_000_000);
    assert_eq!(spool.make_room().unwrap(), 3);
    assert_eq!(ids(&spool), ["000007-big-7"], "the newest stays");
}

#[test]
fn sent_bundles_are_removed_first() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(1 << 30), Size(0)).unwrap();
    let first = add(&spool, "x", 100_000);
    let second = add(&spool, "y", 100_000);
    let third = add(&spool, "z", 100_000);
    spool.mark_sent(&first).unwrap();
    assert_eq!(spool.unsent().unwrap(), [second.clone(), third]);
    let small = Spool::open(folder.path(), Size(250_000), Size(0));
    assert_eq!(small.make_room().unwrap(), 0, "a sent one goes, and is no loss");
    assert_eq!(ids(&small).first(), Some(&second));
    assert_eq!(small.dropped(), 0);
}

#[test]
fn only_bundles_are_marked_as_sent() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(1 << 30), Size(0)).unwrap();
    let id = add(&spool, "x", 1000);
    for wrong in [
        "",
        "..",
        "000009-none-1",
        ".sent",
        &format!("000001-/../{id}"),
        &format!("{id}/core"),
    ] {
        assert!(spool.mark_sent(wrong).is_err(), "{wrong}");
    }
    assert_eq!(spool.unsent().unwrap(), [id]);
}

#[test]
fn unfinished_and_foreign_entries_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(1 << 30), Size(0)).unwrap();
    let draft = spool.begin("killed", 1).unwrap();
    std::mem::forget(
        draft
            .writer
            .create_file(&backtrail_bundle::BundlePath::new("core").unwrap()),
    );
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    fs::create_dir(folder.path().join("000001-broken-1")).unwrap();
    let entries = spool.entries().unwrap();
    assert_eq!(entries.len(), 1);
    assert!(entries[0].unreadable.is_some() && entries[0].missing().count() == 1);
}

/// Adds a bundle of a crash of `user`. The bundle itself names `says`.
fn add_of(spool: &Spool, user: u32, says: u32, bytes: usize) -> String {
    let reserved = spool.reserve("x", 7).unwrap();
    let made = tempfile::tempdir_in(spool.directory()).unwrap();
    let bundle = made.path().join("bundle");
    let writer = Writer::create(&bundle, Overwrite::Never).unwrap();
    let path = backtrail_bundle::BundlePath::new("core").unwrap();
    writer.add_bytes(&path, &vec![7; bytes]).unwrap();
    let mut manifest = manifest();
    manifest.meta.collected = Some(backtrail_bundle::manifest::Collected {
        trigger: "crash".to_owned(),
        user: Some(says),
        ..Default::default()
    });
    writer.finish_durably(&manifest).unwrap();
    let user = spool.users.owner_of(user);
    spool.publish(&bundle, &reserved, user).unwrap();
    reserved.id
}

#[test]
fn one_user_cannot_push_out_the_crashes_of_others() {
    // No machine has these as subordinate ids.
    const ANN: u32 = 4_000_000_001;
    const BEN: u32 = 4_000_000_002;
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(1_000_000), Size(0)).unwrap();
    let of_root = add_of(&spool, 0, 0, 100_000);
    let of_ann = add_of(&spool, ANN, ANN, 100_000);
    for _ in 0..20 {
        // A bundle that is written for a user counts as that user's, whatever it contains.
        add_of(&spool, BEN, BEN, 100_000);
        add_of(&spool, BEN, 0, 100_000);
        spool.make_room().unwrap();
    }
    let left = ids(&spool);
    assert!(left.contains(&of_root) && left.contains(&of_ann), "{left:?}");
    assert!((6..=9).contains(&left.len()), "{left:?}");
    // A restarted daemon knows the owners from its records, and not from the bundles.
    let records = || fs::read_dir(folder.path().join(USERS)).unwrap().count();
    assert_eq!(records(), left.len(), "records of users go with their bundles");
    fs::write(folder.path().join(USERS).join("999999-x-7"), "1").unwrap();
    let again = Spool::create(folder.path(), Size(350_000), Size(0)).unwrap();
    assert_eq!(records(), left.len());
    again.make_room().unwrap();
    let left = ids(&again);
    assert!(left.contains(&of_root) && left.contains(&of_ann), "{left:?}");
}

#[test]
fn modules_are_removed_with_their_last_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(1), Size(0)).unwrap();
    let module = std::env::current_exe().unwrap();
    for name in ["first", "second"] {
        let draft = spool.begin(name, 7).unwrap();
        draft.writer.add_module(&module, "/bin/worker").unwrap();
        draft.writer.finish_durably(&manifest()).unwrap();
    }
    let shared = || {
        fs::read_dir(folder.path().join(MODULES).join("0"))
            .unwrap()
            .count()
    };
    spool.make_room().unwrap();
    assert_eq!((ids(&spool).len(), shared()), (1, 1), "the newest still has it");
    add(&spool, "third", 10);
    spool.make_room().unwrap();
    assert_eq!((ids(&spool).len(), shared()), (1, 0));
}

/// A worker that outlives its killed daemon has its bundle locked. Here another thread has it.
#[test]
fn bundle_of_a_dying_worker_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::create(folder.path(), Size(1 << 30), Size(0)).unwrap();
    let unfinished = folder.path().join(".backtrail-unfinished");
    fs::create_dir(&unfinished).unwrap();
    let lock = nix::fcntl::Flock::lock(
        fs::File::open(&unfinished).unwrap(),
        nix::fcntl::FlockArg::LockExclusive,
    );
    let lock = lock.unwrap();
    let dying = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(lock);
    });
    drop(spool);
    Spool::create(folder.path(), Size(1 << 30), Size(0)).unwrap();
    assert!(!unfinished.exists());
    dying.join().unwrap();
}
