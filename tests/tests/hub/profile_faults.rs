//! Two hubs on PostgreSQL and one bucket take profiles while either is killed: each acknowledged
//! profile counts once.

use super::bucket::{Bucket, Site};
use super::postgres::Postgres;
use super::profiles::folded;
use backtrail_tests::hub_process::HubProcess;
use nix::sys::signal::{Signal, kill};
use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The clients, and the profiles that each sends.
const CLIENTS: usize = 4;
const PROFILES: usize = 12;
/// The times between two kills. A push is collected for 400 ms, and then committed.
const PAUSES: [u64; 6] = [430, 470, 520, 410, 600, 450];
/// The time for all pushes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the only stack of a profile, and its weight.
fn stack(client: usize, number: usize) -> (String, u64) {
    let weight = (client * PROFILES + number + 1) as u64;
    (format!("main;client_{client};work_{number}"), weight)
}

/// Sends a profile until a hub acknowledges it.
fn push(hubs: &[RwLock<HubProcess>; 2], token: &str, client: usize, number: usize) {
    let (name, weight) = stack(client, number);
    let body = format!("{name} {weight}\n");
    let end = Instant::now() + PATIENCE;
    for attempt in client + number.. {
        let hub = hubs[attempt % 2].read().unwrap();
        let path = "/api/v1/profiles?service=faults";
        match hub.request("POST", path, Some(token), body.as_bytes()) {
            Ok(answer) if answer.status == 204 => return,
            // The hub was killed, or ends.
            Ok(answer) => assert!(answer.status >= 500, "{}: {}", answer.status, answer.text()),
            Err(_) => {}
        }
        drop(hub);
        assert!(Instant::now() < end, "no hub takes {name}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn stored(hub: &HubProcess, token: &str) -> BTreeMap<String, u64> {
    let path = "/api/v1/profiles/merge?format=folded&service=faults&from=1d";
    let answer = hub.request("GET", path, Some(token), b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    folded(&answer.text())
}

#[test]
fn hubs_killed_in_commits_lose_and_double_nothing() {
    let Some(database) = Postgres::start() else { return };
    let bucket = Bucket::s3s();
    let folder = tempfile::tempdir().unwrap();
    let more = format!("database = \"{}\"", database.address());
    let sites = ["first", "second"].map(|name| Site::new(folder.path(), name, bucket.address, &more));
    let token = sites[0].token(&["ingest", "read", "admin"]);
    let hubs = [sites[0].start(), sites[1].start()].map(RwLock::new);
    let open = AtomicUsize::new(CLIENTS);
    let kills = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (hubs, token, open) = (&hubs, &token, &open);
            scope.spawn(move || {
                for number in 0..PROFILES {
                    push(hubs, token, client, number);
                }
                let _ = open.fetch_sub(1, Ordering::Release);
            });
        }
        let mut kills = 0;
        for (turn, pause) in PAUSES.into_iter().enumerate() {
            std::thread::sleep(Duration::from_millis(pause));
            if open.load(Ordering::Acquire) == 0 {
                break;
            }
            let at = turn % 2;
            let pid = hubs[at].read().unwrap().pid();
            kill(pid, Signal::SIGKILL).unwrap();
            kills += 1;
            // Requests of the killed hub have failed by now.
            let mut hub = hubs[at].write().unwrap();
            *hub = sites[at].start();
        }
        kills
    });
    assert!(kills >= 2, "{kills}");
    let clients = 0..CLIENTS;
    let expected: BTreeMap<_, _> = clients
        .flat_map(|client| (0..PROFILES).map(move |number| stack(client, number)))
        .collect();
    for hub in &hubs {
        assert_eq!(stored(&hub.read().unwrap(), &token), expected);
    }
}
