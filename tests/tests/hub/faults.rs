//! Faults at every moment: killed hubs and clients, a full disk, bad lines, and a bad bucket.
//!
//! After each, nothing that was acknowledged is lost, and no crash is half visible. The counts are
//! exact, and an index that is computed from the objects equals the index.

use super::bucket::{Bucket, Site};
use super::fleet::{Fleet, check_whole, get, index, push, push_command, wait_for_checks};
use super::proxy::{Faults, Proxy};
use backtrail_tests::hub_process::{HubProcess, PATIENCE, binary, run, token, until};
use backtrail_tests::random::Random;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The scopes of all tokens here.
const SCOPES: &[&str] = &["ingest", "read"];

fn address(hub: &HubProcess) -> SocketAddr {
    hub.address.trim_start_matches("http://").parse().unwrap()
}

/// A hub after a proxy, which keeps its address when the hub starts again.
struct ProxiedHub<'a> {
    data: &'a Path,
    proxy: Proxy,
    hub: HubProcess,
}

impl<'a> ProxiedHub<'a> {
    fn start(data: &'a Path, seed: u64) -> Self {
        let nowhere: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let proxy = Proxy::start(nowhere, seed);
        let hub = Self::hub(data, &proxy);
        Self { data, proxy, hub }
    }

    fn hub(data: &Path, proxy: &Proxy) -> HubProcess {
        let hub = HubProcess::start(data, &["--public-url", &proxy.url()]).unwrap();
        proxy.set_target(address(&hub));
        hub
    }

    fn kill_and_start(&mut self) {
        self.hub.kill().unwrap();
        self.hub = Self::hub(self.data, &self.proxy);
    }

    /// Stops the hub, computes its index, and compares it with the old one.
    fn check_rebuilt(mut self, token: &str) {
        let before = index(&self.hub, token);
        assert_eq!(self.hub.stop().unwrap(), Some(0));
        let output = run(self.data, &["rebuild-index"], &[]).unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let hub = HubProcess::start(self.data, &[]).unwrap();
        assert_eq!(index(&hub, token), before, "{text}");
    }
}

/// Pushes until the hub acknowledges, and kills some of the pushes at random moments. Returns the
/// crash, `None` if the push was killed and not repeated.
fn push_with_kills(
    fleet: &Fleet,
    hub: &str,
    token: &str,
    bundle: &Path,
    random: &mut Random,
) -> Option<String> {
    let is_killed = random.once_in(3);
    let is_given_up = is_killed && random.once_in(3);
    if is_killed {
        let mut command = push_command(fleet.user(), hub, token, bundle);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random.below(400) as u64));
        let _ = child.kill();
        let _ = child.wait();
    }
    if is_given_up {
        return None;
    }
    let end = Instant::now() + 4 * PATIENCE;
    loop {
        if let Some(id) = push(fleet.user(), hub, token, bundle) {
            return Some(id);
        }
        assert!(Instant::now() < end, "no push succeeds");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Uploads crashes from two clients, while hub and clients are killed at random moments.
fn kill_during(uploads: usize, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), SCOPES).unwrap();
    let mut behind = ProxiedHub::start(folder.path(), seed);
    let mut fleet = Fleet::new();
    let bundles: Vec<_> = (0..uploads).map(|_| fleet.bundle()).collect();
    let url = behind.proxy.url();
    let waiting = Mutex::new(bundles);
    let acknowledged = Mutex::new(Vec::new());
    let is_done = AtomicBool::new(false);
    let mut kills = 0;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|number| {
                let (fleet, url, token, waiting, acknowledged) =
                    (&fleet, &url, &token, &waiting, &acknowledged);
                scope.spawn(move || {
                    let mut random = Random::new(seed + 100 + number);
                    loop {
                        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
                        let Some(bundle) = next else { return };
                        let id = push_with_kills(fleet, url, token, &bundle, &mut random);
                        acknowledged.lock().unwrap().extend(id);
                    }
                })
            })
            .collect();
        let watch = scope.spawn(|| {
            let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            is_done.store(true, Ordering::Relaxed);
            results.into_iter().for_each(|result| result.unwrap());
        });
        let mut random = Random::new(seed);
        while !is_done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200 + random.below(1500) as u64));
            behind.kill_and_start();
            kills += 1;
        }
        watch.join().unwrap();
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    eprintln!(
        "{} of {uploads} uploads acknowledged, the hub killed {kills} times",
        acknowledged.len()
    );
    check_whole(&behind.hub, &token, &acknowledged);
    behind.check_rebuilt(&token);
}

#[test]
fn kills_lose_no_upload() {
    kill_during(10, 1);
}

#[test]
#[ignore = "takes minutes: 200 uploads"]
fn kills_during_200_uploads_lose_none() {
    kill_during(200, 2);
}

/// Uploads over lines that are slow, and cut at random bytes.
fn cut_lines(uploads: usize, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), SCOPES).unwrap();
    let behind = ProxiedHub::start(folder.path(), seed);
    behind.proxy.set_faults(Faults::Line {
        speed: 4 << 20,
        cut: 512 << 10,
    });
    let mut fleet = Fleet::new();
    let mut random = Random::new(seed);
    let mut ids = Vec::new();
    for _ in 0..uploads {
        let bundle = fleet.bundle();
        // None is killed, but a push gives up after some failures.
        let id = loop {
            if let Some(id) = push(fleet.user(), &behind.proxy.url(), &token, &bundle) {
                break id;
            }
            std::thread::sleep(Duration::from_millis(random.below(100) as u64));
        };
        ids.push(id);
    }
    assert!(behind.proxy.failed() > 0, "no line was cut");
    behind.proxy.set_faults(Faults::None);
    check_whole(&behind.hub, &token, &ids);
    behind.check_rebuilt(&token);
}

#[test]
fn slow_and_cut_lines_lose_no_upload() {
    cut_lines(4, 3);
}

#[test]
#[ignore = "takes minutes: 100 uploads"]
fn cut_lines_during_100_uploads_lose_none() {
    cut_lines(100, 4);
}

/// Uploads to a hub whose bucket fails every other call.
fn bad_bucket(uploads: usize, seed: u64) {
    let bucket = Bucket::s3s();
    let proxy = Proxy::start(bucket.address, seed);
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new(folder.path(), "hub", proxy.address, "");
    let token = site.token(SCOPES);
    let mut hub = site.start();
    proxy.set_faults(Faults::Requests { one_in: 2 });
    let mut fleet = Fleet::new();
    let mut ids = Vec::new();
    for _ in 0..uploads {
        let bundle = fleet.bundle();
        let id = until("the push is acknowledged", || {
            push(fleet.user(), &hub.address, &token, &bundle)
        });
        ids.push(id);
        wait_for_checks(&hub, &token);
    }
    assert!(proxy.failed() > uploads, "the bucket did not fail");
    proxy.set_faults(Faults::None);
    check_whole(&hub, &token, &ids);
    let before = index(&hub, &token);
    assert_eq!(hub.stop().unwrap(), Some(0));
    let done = site.done(&["rebuild-index"]);
    assert!(done.contains("0 bundles and 0 lines are damaged"), "{done}");
    let hub = site.start();
    assert_eq!(index(&hub, &token), before);
}

#[test]
fn bucket_that_fails_every_other_call_loses_none() {
    bad_bucket(2, 5);
}

#[test]
#[ignore = "takes minutes: 40 uploads"]
fn bad_bucket_during_40_uploads_loses_none() {
    bad_bucket(40, 6);
}

/// A directory on a small file system of its own, which only processes in a namespace see.
struct SmallDisk {
    holder: std::process::Child,
}

impl SmallDisk {
    /// Mounts a file system of some MiB. `None`: this machine does not permit it.
    fn mount(directory: &Path, mib: usize) -> Option<Self> {
        let script = format!(
            "mount -t tmpfs -o size={mib}m,mode=700 tmpfs '{}' && echo mounted && exec sleep 3600",
            directory.display()
        );
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = [0; 8];
        let is_mounted = holder
            .stdout
            .take()
            .is_some_and(|mut stdout| std::io::Read::read_exact(&mut stdout, &mut line).is_ok());
        let disk = Self { holder };
        if is_mounted {
            return Some(disk);
        }
        eprintln!("left out: this machine permits no file system in a user namespace");
        None
    }

    /// Returns a command that sees the file system.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder.id()))
            .args(["--user", "--mount", "--preserve-credentials", "--"])
            .arg(program);
        command
    }

    /// Runs a shell script that sees the file system, and returns its output.
    #[track_caller]
    fn shell(&self, script: &str) -> String {
        let output = self
            .command(Path::new("sh"))
            .args(["-c", script])
            .stderr(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns the command of a hub on a small disk.
fn hub_command(disk: &SmallDisk, data: &Path, arguments: &[&str]) -> Command {
    let mut command = disk.command(binary().unwrap());
    command.arg("--data").arg(data).args(arguments);
    command
}

#[test]
fn full_disk_loses_no_acknowledged_upload() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let Some(disk) = SmallDisk::mount(&data, 48) else {
        return;
    };
    let place = data.display();
    let output = hub_command(
        &disk,
        &data,
        &["token", "tests", "--scope", "ingest", "--scope", "read"],
    )
    .output()
    .unwrap();
    let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let log = folder.path().join("log");
    let start = || {
        let mut command = hub_command(&disk, &data, &["--listen", "127.0.0.1:0"]);
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        HubProcess::of_command(command.stderr(file)).unwrap()
    };
    let mut hub = start();
    let mut fleet = Fleet::new();
    let mut ids = Vec::new();
    let mut pushed = |hub: &HubProcess| {
        let bundle = fleet.bundle();
        (push(fleet.user(), &hub.address, &token, &bundle), bundle)
    };
    // Later ones are sent with their modules, because the hub does not ask for them.
    for _ in 0..3 {
        ids.extend(pushed(&hub).0);
        wait_for_checks(&hub, &token);
    }
    assert_eq!(ids.len(), 3);

    // No byte is free: nothing is acknowledged, and the hub goes on.
    let _ = disk.shell(&format!(
        "dd if=/dev/zero of='{place}/filler' bs=4096; dd if=/dev/zero of='{place}/rest' bs=1"
    ));
    let (refused, bundle) = pushed(&hub);
    assert_eq!(refused, None);
    let page = |path: &str| hub.request("GET", path, Some(&token), b"").unwrap().status;
    assert_eq!(page("/"), 200);
    // The audit log cannot have who opens a crash.
    assert_eq!(page(&format!("/c/{}", ids[0])), 503);
    let _ = disk.shell(&format!("rm '{place}/filler' '{place}/rest'"));
    let again = until("a push after the disk has room", || {
        push(fleet.user(), &hub.address, &token, &bundle)
    });
    ids.push(again);
    wait_for_checks(&hub, &token);

    // Room for an upload, but not for its check. How much a check needs depends on the free part
    // of the database's log, so less and less room is left.
    let late = (0..12).find_map(|attempt| {
        let size: usize = disk
            .shell(&format!("df --output=avail -B1024 '{place}' | tail -1"))
            .parse()
            .unwrap();
        let fill = size - [3, 2, 4, 1][attempt % 4] * 1024;
        let _ = disk.shell(&format!(
            "dd if=/dev/zero of='{place}/filler' bs=1024 count={fill}"
        ));
        let bundle = fleet.bundle();
        let late = push(fleet.user(), &hub.address, &token, &bundle);
        let is_failed = late.as_ref().is_some_and(|late| {
            let path = format!("/api/v1/crashes/{late}");
            until("the check ends", || {
                let is_waiting = get(&hub, &token, &path)["bundle"] == "checking";
                let text = std::fs::read_to_string(&log).unwrap();
                (!is_waiting || text.contains("failed at attempt")).then_some(is_waiting)
            })
        });
        if is_failed {
            return late;
        }
        let _ = disk.shell(&format!("rm '{place}/filler'"));
        ids.extend(late);
        None
    });
    let late = late.expect("a check fails for lack of room");
    hub.kill().unwrap();
    let _ = disk.shell(&format!("rm '{place}/filler'"));
    let mut hub = start();
    ids.push(late);
    check_whole(&hub, &token, &ids);
    let before = index(&hub, &token);
    assert_eq!(hub.stop().unwrap(), Some(0));
    let output = hub_command(&disk, &data, &["rebuild-index"]).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(index(&start(), &token), before);
}
