//! `bench hub`: reports per second, times of pages and memory of the hub, beside Bugsink.

mod bugsink;
mod bundles;
mod events;
pub(super) mod http;
mod pages;
mod reports;
mod times;

use super::typed;
use super::{folder, machine, sentence};
use crate::{Failure, packages};
use backtrail_tests::hub_process::{HubProcess, token_of_binary};
use events::Events;
use http::Client;
use std::fs;
use std::path::{Path, PathBuf};

/// The tokens of the benchmark send more requests than a host may.
const SETTINGS: &str = "[limits]\nrequests_per_second = 1000000\n";

/// Options of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOptions {
    /// The number of crashes that pages are measured with. 0: pages are left out.
    crashes: usize,
    /// The number of their groups.
    groups: usize,
    /// The number of events that Bugsink gets. 0: it is left out.
    peer_events: usize,
    /// Minutes of bundles. 0: bundles are left out.
    minutes: u64,
    /// Bundles a second.
    rate: u64,
}

impl HubOptions {
    /// Reads them.
    pub fn parse(arguments: &[&str]) -> Result<Self, Failure> {
        let mut options = Self {
            crashes: 100_000,
            groups: 1000,
            peer_events: 5000,
            minutes: 10,
            rate: 50,
        };
        let names = typed::read(
            arguments,
            |_| false,
            |word| {
                match word.name {
                    "--crashes" => options.crashes = word.number()?,
                    "--groups" => options.groups = word.number::<usize>()?.max(1),
                    "--peer-events" => options.peer_events = word.number()?,
                    "--minutes" => options.minutes = word.number()?,
                    "--rate" => options.rate = word.number::<u64>()?.max(1),
                    _ => return Ok(false),
                }
                Ok(true)
            },
        )?;
        match names.first() {
            Some(name) => Err(format!("bench hub takes no \"{name}\"")),
            None => Ok(options),
        }
    }
}

/// A running hub, and its clients.
struct Bench {
    hub: HubProcess,
    data: PathBuf,
    /// Sends reports and bundles.
    sender: Client,
    /// Opens pages.
    reader: Client,
}

impl Bench {
    /// Starts a hub in an empty directory.
    fn start(binary: &Path, data: &Path) -> Result<Self, Failure> {
        let _ = fs::remove_dir_all(data);
        let failed = |error| sentence("the hub", &error);
        fs::create_dir_all(data).map_err(failed)?;
        let settings = data.join("hub.toml");
        fs::write(&settings, SETTINGS).map_err(failed)?;
        let token = |scopes: &[&str]| token_of_binary(binary, data, scopes).map_err(failed);
        let (ingest, read) = (token(&["ingest"])?, token(&["read", "admin"])?);
        let arguments = ["--config", &settings.to_string_lossy()];
        let hub = HubProcess::start_binary(binary, data, &arguments).map_err(failed)?;
        let client = |token: &str| {
            let authorization = format!("Bearer {token}");
            Client::new(&hub.address, &[("Authorization", &authorization)])
        };
        Ok(Self {
            sender: client(&ingest),
            reader: client(&read),
            data: data.to_owned(),
            hub,
        })
    }
}

/// Measures, and prints tables.
pub fn run(options: &HubOptions, backtrail: &Path, hub: &Path) -> Result<(), Failure> {
    let folder = folder("bench/hub")?;
    println!(
        "`cargo xtask bench hub` on {}; load before {}.\n",
        machine::line(),
        machine::load()
    );
    let bundle = bundles::recorded(&folder, backtrail)?;
    let events = Events::new(options.groups);
    if options.crashes > 0 {
        let bench = Bench::start(hub, &folder.join("data"))?;
        reports::fill(&bench, &events, options.crashes)?;
        let crash = bundles::upload_one(&bench, &bundle)?;
        pages::measure(&bench, &events, options.crashes, &crash)?;
        end(bench)?;
    }
    if options.peer_events > 0 {
        packages::ensure(&[packages::READERS])?;
        bugsink::measure(&folder, &events, options.peer_events)?;
    }
    if options.minutes > 0 {
        let bench = Bench::start(hub, &folder.join("data"))?;
        bundles::measure(&bench, &bundle, options.minutes, options.rate)?;
        end(bench)?;
    }
    println!("\nLoad after: {}.", machine::load());
    Ok(())
}

/// Stops a hub, and removes its files.
fn end(mut bench: Bench) -> Result<(), Failure> {
    bench.hub.stop().map_err(|error| sentence("the hub", &error))?;
    fs::remove_dir_all(&bench.data).map_err(|error| sentence("the hub's files", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let options = HubOptions::parse(&["--crashes", "7", "--minutes", "0"]).unwrap();
        assert_eq!((options.crashes, options.minutes, options.rate), (7, 0, 50));
        assert!(HubOptions::parse(&["--crashes"]).is_err());
        assert!(HubOptions::parse(&["gzip"]).is_err());
    }
}
