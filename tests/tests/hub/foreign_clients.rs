//! Foreign clients send profiles to a hub: pyroscope-io, and the messages of OpenTelemetry over
//! grpcio. A client that grpcio-tools generates from our `.proto` file asks for symbols.

use super::contract::{has_package, run, script};
use super::profiles::folded;
use backtrail_tests::backtrail::repository;
use backtrail_tests::hub_process::{HubProcess, token};
use std::process::Command;

/// A hub, and a token for all.
struct Site {
    hub: HubProcess,
    token: String,
    folder: tempfile::TempDir,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("hub");
        let token = token(&data, &["ingest", "read", "admin"]).unwrap();
        let hub = HubProcess::start(&data, &[]).unwrap();
        Self { hub, token, folder }
    }

    /// Returns the host and port.
    fn place(&self) -> &str {
        self.hub.address.trim_start_matches("http://")
    }

    fn client(&self, name: &str, address: &str) -> Command {
        let mut client = script("python3".as_ref(), name);
        client.args([address, &self.token]);
        client
    }

    fn stored(&self, query: &str) -> std::collections::BTreeMap<String, u64> {
        let path = format!("/api/v1/profiles/merge?format=folded&from=1d&{query}");
        let answer = self.hub.request("GET", &path, Some(&self.token), b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        folded(&answer.text())
    }
}

#[test]
fn pyroscope_io_sends_profiles_of_python() {
    if !has_package("pyroscope") {
        return;
    }
    let site = Site::start();
    let mut client = site.client("pyroscope_client.py", &site.hub.address);
    let _ = run(client.args(["py.shop", "4"]));
    let stacks = site.stored("service=py.shop&region=lab&language=python");
    assert!(
        stacks.keys().any(|stack| stack.contains("spin_for_the_hub")),
        "{stacks:?}"
    );
}

#[test]
fn opentelemetry_messages_arrive_over_grpcio() {
    if !has_package("grpc") || !has_package("opentelemetry.proto.collector.profiles.v1development") {
        return;
    }
    let site = Site::start();
    let printed = run(site
        .client("otlp_client.py", site.place())
        .args(["otlp-shop", "7"]));
    assert_eq!(printed.trim(), "UNAUTHENTICATED");
    let expected = [("main;otlp_work".to_owned(), 7)];
    assert_eq!(site.stored("service=otlp-shop"), expected.into());
}

#[test]
fn client_of_the_proto_file_gets_symbol_states() {
    if !has_package("grpc_tools") {
        return;
    }
    let site = Site::start();
    let mut client = site.client("symbolize_client.py", site.place());
    client.arg(repository().join("docs/symbolize.proto"));
    client.args(["00112233445566778899aabbccddeeff01234567", "1"]);
    let printed = run(client.arg(site.folder.path()));
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        ["absent", "INVALID_ARGUMENT"]
    );
}
