//! The rate at which a hub takes profiles while it compacts them, and its memory.

use super::Fleet;
use crate::Failure;
use crate::bench::hub::http::{Client, parallel};
use crate::bench::sentence;
use backtrail_tests::hub_process::{HubProcess, token_of_binary};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The profiles that clients send, each of another service.
const PROFILES: usize = 50;
/// The samples of a profile: ten seconds of 99 Hz on ten processors.
const SAMPLES: u64 = 9900;
/// The clients.
const CLIENTS: usize = 32;
/// The goal: the rate of the largest published fleet, in samples a minute.
const GOAL: f64 = 5e6;
/// The tokens of the benchmark send more requests than a host may.
const SETTINGS: &str = "[limits]\nrequests_per_second = 1000000\n";

/// Sends profiles for some seconds, and prints the rate.
pub(super) fn measure(fleet: &Fleet, folder: &Path, hub: &Path, seconds: u64) -> Result<(), Failure> {
    let pushes = folder.join("pushes");
    let _ = fs::remove_dir_all(&pushes);
    let (count, samples) = (PROFILES.to_string(), SAMPLES.to_string());
    let _ = fleet.run(&["pushes"], &pushes, &[&count, &samples])?;
    let failed = |error| sentence("the hub", &error);
    let read = |number: usize| fs::read(pushes.join(format!("{number}.pb.gz")));
    let bodies: Vec<_> = (0..PROFILES)
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let data = folder.join("hub");
    let _ = fs::remove_dir_all(&data);
    fs::create_dir_all(&data).map_err(failed)?;
    let settings = data.join("hub.toml");
    fs::write(&settings, SETTINGS).map_err(failed)?;
    let token = token_of_binary(hub, &data, &["ingest"]).map_err(failed)?;
    let arguments = ["--config", &settings.to_string_lossy()];
    let mut process = HubProcess::start_binary(hub, &data, &arguments).map_err(failed)?;
    let authorization = format!("Bearer {token}");
    let client = Client::new(&process.address, &[("Authorization", &authorization)]);
    let (begin, length) = (Instant::now(), Duration::from_secs(seconds));
    let sent = AtomicU64::new(0);
    let elapsed = parallel(CLIENTS, CLIENTS, |client_number| {
        for round in 0.. {
            if begin.elapsed() >= length {
                break;
            }
            let number = (client_number + round * CLIENTS) % PROFILES;
            let Some(body) = bodies.get(number) else { break };
            // A push of another host is another push.
            let path = format!("/api/v1/profiles?service=service-{number}&host=host-{client_number}-{round}");
            client.request("POST", &path, &[], body)?;
            sent.fetch_add(SAMPLES, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let peak = peak(&process.pid().to_string())?;
    let metrics = client.request("GET", "/metrics", &[], &[])?;
    process.stop().map_err(failed)?;
    let sent = sent.into_inner() as f64;
    let rate = sent / elapsed.as_secs_f64() * 60.0;
    println!(
        "\n{CLIENTS} clients sent {} million samples in {:.0} s: {:.2} million a minute, {:.0} % of the goal. The peak \
         of the hub's memory was {peak} MiB.\n",
        (sent / 1e5).round() / 10.0,
        elapsed.as_secs_f64(),
        rate / 1e6,
        rate / GOAL * 100.0
    );
    for line in String::from_utf8_lossy(&metrics.body).lines() {
        if line.starts_with("backtrail_hub_profile_") && !line.contains("cache") {
            println!("    {line}");
        }
    }
    fs::remove_dir_all(&data).map_err(failed)
}

/// Returns the most memory that a process has had, in MiB.
fn peak(pid: &str) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.map_err(|error| sentence("the hub", &error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes
        .map(|size| size >> 10)
        .ok_or_else(|| "the kernel does not report the hub's memory".to_owned())
}
