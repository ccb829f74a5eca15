//! A deploy over many hosts that crashes, its fix, and an old build that still crashes.

use super::{User, outcome};
use backtrail_report::client::{HubAddress, HubClient, Upload, UploadKind};
use backtrail_report::{CrashReport, Heartbeat, Receipt, ReportId, RunningBuild, VERSION};
use backtrail_tests::backtrail::backtrail;
use backtrail_tests::hub_process::{HubProcess, token, until};
use backtrail_tests::hub_server::HubServer;
use backtrail_tests::webhook::Receiver;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The functions that crash.
const SITES: [&str; 3] = ["close_account", "open_account", "audit"];
/// One of this number of hosts crashes.
const ONE_IN: u64 = 1000;
/// The crashes of each of these hosts.
const CRASHES: u64 = 300;
/// The most reports of one request.
const LIST: usize = 100;
/// An hour in microseconds.
const HOUR: u64 = 3600 * 1_000_000;

/// A real crash: its report and its bundle, which the hosts send with their own names.
struct Template {
    report: CrashReport,
    bundle: PathBuf,
}

/// Builds the service, and returns the crashes of its functions.
fn templates(folder: &Path, build: &str) -> Vec<Template> {
    let source = folder.join("ledger.c");
    let functions: String = SITES
        .iter()
        .map(|name| format!("__attribute__((noinline)) int {name}(int *at) {{ return *at + 1; }}\n"))
        .collect();
    fs::write(
        &source,
        format!(
            "const char *version = \"{build}\";\n{functions}int main(int count, char **words) {{\n\
             int *at = count > 9 ? &count : 0;\n\
             switch (words[1][0]) {{ case '0': return {}(at) + 1; case '1': return {}(at) + 2; default: return {}(at) + 3; }} }}\n",
            SITES[0], SITES[1], SITES[2]
        ),
    )
    .unwrap();
    let program = folder.join("ledger");
    let built = Command::new("cc")
        .args(["-g", "-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    let (tap, user) = (HubServer::start().unwrap(), User::new());
    user.login(&tap);
    let crash = |site: usize| {
        let bundle = folder.join(format!("{build}-{site}.bundle"));
        let arguments = [
            "record".as_ref(),
            "--exit-zero".as_ref(),
            "-o".as_ref(),
            bundle.as_os_str(),
            "--".as_ref(),
            program.as_os_str(),
            ["0", "1", "2"][site].as_ref(),
        ];
        let _ = backtrail(arguments).unwrap().exited(0);
        let pushed = outcome(&mut user.command(&["push".as_ref(), bundle.as_os_str()])).exited(0);
        let id = pushed.stdout.trim().rsplit('/').next().unwrap();
        let state = tap.state();
        let packed = folder.join(format!("{build}-{site}.btz"));
        fs::write(&packed, &state.bundles[id]).unwrap();
        Template {
            report: serde_json::from_value(state.reports[id].clone()).unwrap(),
            bundle: packed,
        }
    };
    (0..SITES.len()).map(crash).collect()
}

/// The hosts, and what they sent.
struct Fleet {
    client: HubClient,
    hosts: u64,
    start: u64,
    sent: u64,
    asked: BTreeSet<ReportId>,
}

impl Fleet {
    /// Each of the first hosts reports its builds and the times at which it first ran them.
    fn beat(&self, hosts: u64, builds: &[(&str, u64)]) {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= hosts {
                            return;
                        }
                        let running = builds.iter().map(|(build, since)| RunningBuild {
                            service: "ledger".to_owned(),
                            build: (*build).to_owned(),
                            since: *since,
                        });
                        let beat = Heartbeat {
                            version: VERSION,
                            host: format!("web-{number}"),
                            collector: "1".to_owned(),
                            running: running.collect(),
                        };
                        self.client.heartbeat(&beat).unwrap();
                    }
                });
            }
        });
    }

    /// Crashes at all sites in turn, and sends the bundles that the hub asks for.
    fn crash(&mut self, templates: &[Template], build: &str, count: u64) {
        let crashing = self.hosts / ONE_IN;
        let mut reports = Vec::new();
        for _ in 0..count {
            let number = self.sent;
            self.sent += 1;
            let mut digest = [0; 32];
            for (place, digit) in digest.iter_mut().enumerate().take(12) {
                *digit = u8::try_from(number >> (5 * place) & 31).unwrap();
            }
            let mut report = templates[(number % 3) as usize].report.clone();
            report.id = ReportId::of_digest(&digest);
            report.time = self.start + number;
            report.host = format!("web-{}", number / 3 % crashing);
            report.build = build.to_owned();
            reports.push(report);
        }
        for list in reports.chunks(LIST) {
            let receipts = self.client.send(list).unwrap();
            for (receipt, report) in receipts.iter().zip(list) {
                self.upload(receipt, report, templates);
            }
        }
    }

    /// Sends the bundle of a report if the hub asks for it.
    fn upload(&mut self, receipt: &Receipt, report: &CrashReport, templates: &[Template]) {
        if receipt.wants.is_none() || !self.asked.insert(receipt.id.clone()) {
            return;
        }
        let template = templates
            .iter()
            .find(|template| template.report.frames == report.frames);
        let file = File::open(&template.unwrap().bundle).unwrap();
        let upload = Upload {
            kind: UploadKind::Bundle,
            subject: receipt.id.as_str(),
            file: &file,
            resume: None,
        };
        self.client
            .upload(upload, &mut |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
    }
}

/// Starts a hub whose webhook takes all events. Its client may send without a limit.
fn start(folder: &Path, receiver: &Receiver) -> HubProcess {
    let config = folder.join("hub.toml");
    fs::write(
        &config,
        format!(
            "allowed_addresses = [\"127.0.0.1\"]\n[limits]\nrequests_per_second = 1000000\n[[alert]]\nname = \"tests\"\n\
             kind = \"webhook\"\nurl = {:?}\nevents = [\"new\", \"first-in-build\", \"regressed\", \"escalating\"]\n",
            receiver.url
        ),
    )
    .unwrap();
    HubProcess::start(&folder.join("data"), &["--config", config.to_str().unwrap()]).unwrap()
}

/// Returns the groups, ordered by their functions as in [`SITES`].
fn groups(hub: &HubProcess, admin: &str) -> Vec<Value> {
    let answer = hub
        .request("GET", "/api/v1/groups", Some(admin), b"")
        .unwrap()
        .json();
    let groups = answer["groups"].as_array().unwrap();
    let mut found = Vec::new();
    for name in SITES {
        let title = format!("SIGSEGV null read in {name}");
        found.extend(groups.iter().filter(|group| group["title"] == *title).cloned());
    }
    assert_eq!((groups.len(), found.len()), (3, 3), "{groups:?}");
    found
}

/// Returns event, build and group of each message that came.
fn alerts(receiver: &Receiver) -> Vec<(String, String, String)> {
    let mut alerts: Vec<_> = receiver
        .deliveries()
        .iter()
        .map(|delivery| {
            let body: Value = serde_json::from_slice(&delivery.body).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (
                text(&body["event"]),
                text(&body["build"]),
                text(&body["group"]["id"]),
            )
        })
        .collect();
    alerts.sort();
    alerts
}

/// Runs the deploy over a number of hosts.
fn deploy(hosts: u64) {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["2.0", "4.0"].map(|build| templates(folder.path(), build));
    let receiver = Receiver::start().unwrap();
    let data = folder.path().join("data");
    let [ingest, admin] = ["ingest", "admin"].map(|scope| token(&data, &[scope]).unwrap());
    let hub = start(folder.path(), &receiver);
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    let mut fleet = Fleet {
        client: HubClient::new(
            HubAddress::parse(&hub.address, false).unwrap(),
            Some(ingest.parse().unwrap()),
        ),
        hosts,
        start: now,
        sent: 0,
        asked: BTreeSet::new(),
    };
    let begun = std::time::Instant::now();
    fleet.beat(hosts, &[("1.0", now - 3 * HOUR), ("2.0", now - HOUR)]);
    println!("{hosts} heartbeats in {:.1} s", begun.elapsed().as_secs_f64());

    // One host in a thousand crashes again and again, at three places.
    let reports = hosts / ONE_IN * CRASHES;
    fleet.crash(&old, "2.0", reports);
    let asked = fleet.asked.len();
    println!("{reports} reports and {asked} bundles");
    assert!((3..=20).contains(&asked), "{asked}");
    let first = until("one alert per group", || {
        Some(alerts(&receiver)).filter(|alerts| alerts.len() >= 3)
    });
    let found = groups(&hub, &admin);
    for group in &found {
        assert_eq!(
            (&group["reports"], &group["hosts"]),
            (&json!(reports / 3), &json!(hosts / ONE_IN))
        );
        assert_eq!(
            (&group["first_build"], &group["last_build"]),
            (&json!("2.0"), &json!("2.0"))
        );
        assert_eq!(group["provisional"], false, "{group}");
        let page = format!("/g/{}", group["id"].as_str().unwrap());
        let page = hub.request("GET", &page, Some(&admin), b"").unwrap().text();
        for wanted in ["0.10 %", "deployed"] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
    }
    let ids: BTreeSet<&str> = found.iter().map(|group| group["id"].as_str().unwrap()).collect();
    let announced: BTreeSet<&str> = first.iter().map(|(.., group)| group.as_str()).collect();
    assert_eq!(announced, ids);
    assert!(
        first
            .iter()
            .all(|(event, build, _)| (event.as_str(), build.as_str()) == ("new", "2.0"))
    );

    // A build with the fix runs on some hosts. The others still have the old one, which crashes.
    fleet.beat(hosts / 10, &[("2.0", now - HOUR), ("3.0", now - HOUR / 2)]);
    for id in &ids {
        let path = format!("/api/v1/groups/{id}/state");
        let answer = hub
            .request(
                "POST",
                &path,
                Some(&admin),
                br#"{"action":"resolve","build":"3.0"}"#,
            )
            .unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    fleet.crash(&old, "2.0", 300);
    for group in groups(&hub, &admin) {
        assert_eq!(
            (&group["state"], &group["reports"]),
            (&json!("resolved"), &json!(reports / 3 + 100))
        );
    }
    assert!(fleet.asked.len() <= 20, "{}", fleet.asked.len());

    // A newer build crashes at one place: that group alone has a regression.
    fleet.beat(hosts / 100, &[("4.0", now)]);
    fleet.sent = fleet.sent.next_multiple_of(3);
    fleet.crash(&new, "4.0", 1);
    let all = until("the regression", || {
        Some(alerts(&receiver)).filter(|alerts| alerts.len() >= 4)
    });
    let regressed: Vec<_> = all.iter().filter(|alert| !first.contains(alert)).collect();
    let expected = (
        "regressed".to_owned(),
        "4.0".to_owned(),
        found[0]["id"].as_str().unwrap().to_owned(),
    );
    assert_eq!(
        (all.len(), regressed.as_slice()),
        (4, &[&expected][..]),
        "{all:?}"
    );
}

#[test]
fn deploy_that_crashes_is_counted_announced_and_resolved() {
    deploy(1000);
}

#[test]
#[ignore = "ten thousand hosts: cargo xtask test-all"]
fn deploy_of_ten_thousand_hosts_is_counted_announced() {
    deploy(10_000);
}
