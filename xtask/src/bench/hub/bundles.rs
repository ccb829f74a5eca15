//! Bundles at a fixed rate, and the memory of the hub at the same time.

use super::events::identifier;
use super::reports::send;
use super::times::Times;
use super::{Bench, sentence};
use crate::Failure;
use backtrail_tests::programs::{Variant, find};
use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Threads that upload.
const SENDERS: u64 = 4;
/// Seconds between two rows of the table.
const LOOK: u64 = 10;
/// Bytes that must stay free on the disk.
const RESERVE: u64 = 10 << 30;
/// The first number of the identifiers, beyond those of small reports.
const FIRST: usize = 1 << 40;

/// A packed bundle.
pub struct PackedBundle {
    bytes: Vec<u8>,
    /// The SHA-256, in base 64 as TUS has it.
    sha256: String,
}

/// Records the crash of a test program, and returns its bundle as one file.
pub fn recorded(folder: &Path, backtrail: &Path) -> Result<PackedBundle, Failure> {
    let failed = |error: std::io::Error| sentence("the bundle", &error);
    let program = find("ledger").ok_or("there is no program \"ledger\"")?;
    let program = backtrail_tests::build(program, Variant::Pie).map_err(failed)?;
    let (bundle, packed) = (folder.join("bundle"), folder.join("bundle.btz"));
    for path in [&bundle, &packed] {
        let _ = fs::remove_dir_all(path);
        let _ = fs::remove_file(path);
    }
    let run = |command: &mut Command| {
        let output = command.output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("cannot make a bundle: {text}"))
    };
    run(Command::new(backtrail)
        .args(["record", "--exit-zero", "-o"])
        .arg(&bundle)
        .arg("--")
        .arg(program))?;
    run(Command::new(backtrail)
        .arg("pack")
        .arg(&bundle)
        .arg("-o")
        .arg(&packed))?;
    let bytes = fs::read(&packed).map_err(failed)?;
    let output = Command::new("sha256sum").arg(&packed).output().map_err(failed)?;
    let sha256 = String::from_utf8_lossy(&output.stdout)
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    Ok(PackedBundle {
        bytes,
        sha256: base64(sha256.as_bytes()),
    })
}

/// Uploads a bundle, and waits until its page has the analysis. Returns the crash.
pub fn upload_one(bench: &Bench, bundle: &PackedBundle) -> Result<String, Failure> {
    upload(bench, bundle, FIRST)?;
    let id = identifier(FIRST);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let path = format!("/api/v1/crashes/{id}");
        let answer = bench.reader.request("GET", &path, &[], b"")?;
        let crash: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        match crash["bundle"].as_str() {
            Some("stored") => return Ok(id),
            Some("refused") => return Err(format!("the hub refused the bundle: {crash}")),
            _ if Instant::now() > end => return Err(format!("the hub does not check the bundle: {crash}")),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Reports a crash, and uploads its bundle in one request.
fn upload(bench: &Bench, bundle: &PackedBundle, number: usize) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = identifier(number);
    let report = json!({
        "version": 1, "id": id, "time": u64::try_from(now.as_micros()).unwrap_or_default(), "host": format!("web-{}", number % 500),
        "service": "ledger", "build": "1.0", "executable": "/srv/ledger", "signal": 11, "code": 1, "pid": 1, "tid": 1,
        "bundle_size": bundle.bytes.len(),
        "frames": [{ "module": "/srv/ledger", "build_id": "a1b2", "offset": 16 + number % 100 }],
    });
    send(bench, vec![report])?;
    let metadata = format!(
        "kind {},subject {},sha256 {}",
        base64(b"bundle"),
        base64(id.as_bytes()),
        bundle.sha256
    );
    let headers = [
        ("Tus-Resumable", "1.0.0"),
        ("Upload-Length", &*bundle.bytes.len().to_string()),
        ("Upload-Metadata", &*metadata),
        ("Content-Type", "application/offset+octet-stream"),
    ];
    bench
        .sender
        .request("POST", "/api/v1/uploads", &headers, &bundle.bytes)
        .map(drop)
}

/// Counts and times of sent bundles.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    failed: AtomicU64,
    times: Mutex<Times>,
    /// The first failure.
    problem: Mutex<Option<Failure>>,
    is_over: AtomicBool,
}

/// Sends bundles at a rate, and prints the memory of the hub over time.
pub fn measure(bench: &Bench, bundle: &PackedBundle, minutes: u64, rate: u64) -> Result<(), Failure> {
    let total = minutes * 60 * rate;
    let needed = total * bundle.bytes.len() as u64 + RESERVE;
    let disk = statvfs(&bench.data).map_err(|error| format!("the disk: {error}"))?;
    let free = disk.blocks_available() * disk.fragment_size();
    if free < needed {
        return Err(format!(
            "{} GiB are free, and the bundles need {}",
            free >> 30,
            needed >> 30
        ));
    }
    println!(
        "\nBundles of {} bytes, {rate} a second for {minutes} minutes:\n\n\
         | seconds | sent | failed | resident MiB | with children MiB | stored | jobs | upload p99 ms |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|",
        bundle.bytes.len()
    );
    let counts = Counts::default();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let counts = &counts;
                scope.spawn(move || send_all(bench, bundle, sender, total, rate, began, counts))
            })
            .collect();
        let watcher = scope.spawn(|| watch(bench, &counts, began));
        for sender in senders {
            let _ = sender.join();
        }
        let seconds = began.elapsed().as_secs_f64();
        counts.is_over.store(true, Ordering::Relaxed);
        let watched = watcher.join().map_err(|_| "the watcher panicked".to_owned())?;
        let sent = counts.sent.load(Ordering::Relaxed);
        println!(
            "\n{sent} of {total} bundles in {seconds:.0} s: {:.1} a second.",
            sent as f64 / seconds
        );
        if let Some(problem) = counts.problem.lock().ok().and_then(|problem| problem.clone()) {
            println!("The first failure: {problem}");
        }
        watched
    })
}

/// Sends each of the sender's bundles at its time.
fn send_all(
    bench: &Bench,
    bundle: &PackedBundle,
    sender: u64,
    total: u64,
    rate: u64,
    began: Instant,
    counts: &Counts,
) {
    for at in (sender..total).step_by(SENDERS as usize) {
        let due = began + Duration::from_secs_f64(at as f64 / rate as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let start = Instant::now();
        match upload(bench, bundle, FIRST + 1 + at as usize) {
            Ok(()) => {
                let _ = counts.sent.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut times) = counts.times.lock() {
                    times.push(start.elapsed());
                }
            }
            Err(problem) => {
                let _ = counts.failed.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut first) = counts.problem.lock() {
                    let _ = first.get_or_insert(problem);
                }
            }
        }
    }
}

/// Prints a row every few seconds.
fn watch(bench: &Bench, counts: &Counts, began: Instant) -> Result<(), Failure> {
    for look in 1.. {
        let due = began + Duration::from_secs(look * LOOK);
        while Instant::now() < due && !counts.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let is_over = counts.is_over.load(Ordering::Relaxed);
        let text = bench.reader.request("GET", "/metrics", &[], b"")?.body;
        let text = String::from_utf8_lossy(&text).into_owned();
        let metric = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or("?", str::trim).to_owned()
        };
        let (own, children) = resident(bench.hub.pid().as_raw().unsigned_abs());
        let times = counts
            .times
            .lock()
            .map(|mut times| std::mem::take(&mut *times))
            .unwrap_or_default();
        println!(
            "| {:.0} | {} | {} | {:.1} | {:.1} | {} | {} | {:.0} |",
            began.elapsed().as_secs_f64(),
            counts.sent.load(Ordering::Relaxed),
            counts.failed.load(Ordering::Relaxed),
            own,
            own + children,
            metric("backtrail_hub_bundles "),
            metric("backtrail_hub_jobs "),
            times.quantile(0.99),
        );
        if is_over {
            break;
        }
    }
    Ok(())
}

/// Returns the resident MiB of a process, and of its children.
fn resident(pid: u32) -> (f64, f64) {
    let children = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let child: u32 = entry.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
            (field(&status, "PPid:")? == u64::from(pid)).then(|| mebibytes(&status))
        });
    let own = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    (mebibytes(&own), children.sum())
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn mebibytes(status: &str) -> f64 {
    field(status, "VmRSS:").unwrap_or_default() as f64 / 1024.0
}

/// Returns bytes in base 64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let byte = |at: usize| part.get(at).copied().map_or(0, u32::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS.get((bits >> (18 - 6 * place) & 63) as usize);
            let is_padding = place > part.len();
            text.push(
                digit
                    .filter(|_| !is_padding)
                    .map_or('=', |&digit| char::from(digit)),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_its_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_kernel_s_status_is_read() {
        let status = "Name:\tx\nPPid:\t42\nVmRSS:\t    2048 kB\n";
        assert_eq!((field(status, "PPid:"), mebibytes(status)), (Some(42), 2.0));
    }
}
