//! The whole path of a crash: a service, the collector, the hub, its alert, and VS Code.
//!
//! The collector saves and sends the crash by itself. It leaves `core_pattern` alone, so that the
//! crashes of other tests are theirs.

use crate::bakery::build;
use crate::collector::{Collector, cannot};
use crate::vscode::{Installed, Walk};
use backtrail_tests::backtrail::{binary, command};
use backtrail_tests::hub_process::{HubProcess, token, until};
use backtrail_tests::webhook::{Delivery, Receiver};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The key of the webhook.
const KEY: &str = "a key of tests";
/// The time in which a person is to know of a crash.
const GOAL: Duration = Duration::from_secs(10);
/// The part of a page that only an analyzed crash has.
const BUTTON: &str = "Reverse debug in VS Code";

/// A hub with a webhook, and a collector that sends to it.
struct Site {
    folder: tempfile::TempDir,
    hub: HubProcess,
    receiver: Receiver,
    /// The token of a reader.
    reader: String,
    collector: Collector,
}

/// A crash that reached the hub, and the times from the crash to the alert and to the page.
struct Arrived {
    alert: Value,
    until_alert: Duration,
    until_page: Duration,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let data = at("hub");
        let (ingest, reader) = (
            token(&data, &["ingest"]).unwrap(),
            token(&data, &["read"]).unwrap(),
        );
        let receiver = Receiver::start().unwrap();
        fs::write(at("key"), format!("{KEY}\n")).unwrap();
        fs::write(
            at("hub.toml"),
            format!(
                "allowed_addresses = [\"127.0.0.1\"]\n\n[[alert]]\nname = \"tests\"\nkind = \"webhook\"\nurl = {:?}\nsecret_file = {:?}\nservices = [\"bakery*\"]\n",
                receiver.url,
                at("key")
            ),
        )
        .unwrap();
        let config = at("hub.toml");
        let hub = HubProcess::start(&data, &["--config", config.to_str().unwrap()]).unwrap();
        let mut collector = Collector::new("");
        // The sender is another user, and must reach the spool.
        fs::set_permissions(collector.folder(), Permissions::from_mode(0o755)).unwrap();
        let file = collector.folder().join("token");
        fs::write(&file, format!("{ingest}\n")).unwrap();
        collector.configure(&format!(
            "[crash]\nhold = \"none\"\n[hub]\nurl = {:?}\ntoken_file = {file:?}\nbuild = \"1.0\"\n",
            hub.address
        ));
        collector.start();
        Self {
            folder,
            hub,
            receiver,
            reader,
            collector,
        }
    }

    /// Runs the service under the recorder until it crashes, and waits for the alert and the page.
    fn crash(&self, program: &Path) -> Arrived {
        let before = self.receiver.deliveries().len();
        let status = command()
            .unwrap()
            .args(["record", "--daemon", "--config"])
            .arg(self.collector.config())
            .arg("--")
            .arg(program)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(128 + 11), "{}", self.collector.log());
        let delivery: Delivery = until("the alert", || self.receiver.deliveries().get(before).cloned());
        assert!(delivery.is_genuine(KEY).unwrap(), "{delivery:?}");
        assert!(!delivery.is_genuine("another key").unwrap());
        let alert: Value = serde_json::from_slice(&delivery.body).unwrap();
        let path = alert["report"]["link"].as_str().unwrap();
        let path = path.strip_prefix(&self.hub.address).unwrap();
        let page = until("the page", || {
            let page = self.hub.request("GET", path, Some(&self.reader), b"").unwrap();
            (page.status == 200 && page.text().contains(BUTTON)).then_some(page)
        });
        let shown = SystemTime::now();
        let crashed = UNIX_EPOCH + Duration::from_micros(alert["report"]["time"].as_u64().unwrap());
        assert!(page.text().contains("checksum"), "{}", page.text());
        Arrived {
            alert,
            until_alert: delivery.time.duration_since(crashed).unwrap(),
            until_page: shown.duration_since(crashed).unwrap(),
        }
    }
}

impl Arrived {
    /// Prints the times, which the log of the test has.
    fn print(&self) {
        println!(
            "from the crash: {:.1} s to the alert, {:.1} s to the page",
            self.until_alert.as_secs_f64(),
            self.until_page.as_secs_f64()
        );
    }
}

#[test]
fn crash_of_a_service_is_announced_and_opens_in_vs_code() {
    if cannot() {
        return;
    }
    let site = Site::new();
    let home = site.folder.path();
    let workspace = home.join("bakery");
    let program = build(&workspace);
    let arrived = site.crash(&program);
    arrived.print();
    let alert = &arrived.alert;
    assert_eq!(
        (&alert["event"], &alert["service"], &alert["build"]),
        (&json!("new"), &json!("bakery"), &json!("1.0"))
    );
    assert_eq!(alert["group"]["title"], "SIGSEGV null read in serve");
    let crash = alert["report"]["id"].as_str().unwrap().to_owned();
    let walked = json!({
        "address": site.hub.address, "token": site.reader, "crash": crash, "title": alert["group"]["title"],
    });
    let Some(installed) = Installed::find() else {
        return;
    };
    installed.prepare(
        home,
        &json!({ "backtrail.path": fs::canonicalize(binary().unwrap()).unwrap() }),
    );
    let walk = Walk {
        installed: &installed,
        home,
        workspace: &workspace,
        variables: vec![
            ("BACKTRAIL_FILES", "127.0.0.1:0".to_owned()),
            ("BACKTRAIL_HUB_WALK", walked.to_string()),
        ],
        shots: "vscode-hub-shots",
    };
    walk.succeeds_within_two_tries();
}

#[test]
#[ignore = "measures, which a busy machine disturbs: cargo xtask test-all"]
fn crash_is_announced_and_shown_within_ten_seconds() {
    if cannot() {
        return;
    }
    // Each site has a first crash, because a known one is not announced again.
    for _ in 0..5 {
        let site = Site::new();
        let program = build(&site.folder.path().join("bakery"));
        let arrived = site.crash(&program);
        arrived.print();
        assert!(arrived.until_alert <= GOAL && arrived.until_page <= GOAL);
    }
}
