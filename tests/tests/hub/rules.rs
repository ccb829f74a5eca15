//! Rules and versions of the grouping in a running hub, whose worker groups past crashes again.

use backtrail_tests::hub_process::{HubProcess, token, until};
use serde_json::{Value, json};

/// Sends a report of a crash at a place.
fn report(hub: &HubProcess, token: &str, number: u64) {
    let report = json!([{
        "version": 1, "id": format!("{number:020}"), "time": 1_790_000_000_000_000_u64 + number, "host": "web-17",
        "service": "ledger", "build": "1.0", "executable": "/srv/ledger", "signal": 11, "code": 128, "pid": 1,
        "tid": 1, "frames": [{"module": "/srv/ledger", "build_id": "a1b2", "offset": 16 * number}],
    }]);
    let body = report.to_string();
    let answer = hub.request("POST", "/api/v1/reports", Some(token), body.as_bytes());
    assert_eq!(answer.unwrap().status, 200);
}

fn get(hub: &HubProcess, token: &str, path: &str) -> Value {
    hub.request("GET", path, Some(token), b"").unwrap().json()
}

/// Returns the titles and reports of all groups, when the job has ended that groups them again.
fn settled(hub: &HubProcess, token: &str) -> Vec<(String, u64)> {
    until("all crashes are grouped again", || {
        get(hub, token, "/api/v1/rules")["regrouping"]
            .is_null()
            .then_some(())
    });
    let groups = get(hub, token, "/api/v1/groups");
    let groups = groups["groups"].as_array().unwrap();
    let mut titles: Vec<_> = groups
        .iter()
        .map(|group| {
            (
                group["title"].as_str().unwrap().to_owned(),
                group["reports"].as_u64().unwrap(),
            )
        })
        .collect();
    titles.sort();
    titles
}

#[test]
fn rule_groups_past_crashes_again_after_a_kill_too() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), &["ingest", "admin"]).unwrap();
    let mut hub = HubProcess::start(folder.path(), &[]).unwrap();
    for number in 1..=3 {
        report(&hub, &token, number);
    }
    let before = settled(&hub, &token);
    assert_eq!(before.len(), 3, "{before:?}");
    let body = json!({ "rule": "group-by module:ledger as Ledger" }).to_string();
    let answer = hub
        .request("POST", "/api/v1/rules", Some(&token), body.as_bytes())
        .unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let rule = answer.json()["id"].as_str().unwrap().to_owned();
    // The job is in the database, so a new hub runs it.
    hub.kill().unwrap();
    let mut hub = HubProcess::start(folder.path(), &[]).unwrap();
    assert_eq!(settled(&hub, &token), [("Ledger".to_owned(), 3)]);

    let path = format!("/api/v1/rules/{rule}");
    assert_eq!(
        hub.request("DELETE", &path, Some(&token), b"").unwrap().status,
        204
    );
    assert_eq!(settled(&hub, &token), before);
    assert_eq!(hub.stop().unwrap(), Some(0));
}

#[test]
fn version_beside_replaces_the_one_of_the_groups() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), &["ingest", "admin"]).unwrap();
    let mut hub = HubProcess::start(folder.path(), &[]).unwrap();
    report(&hub, &token, 1);
    let change = |body: Value| {
        let body = body.to_string();
        let answer = hub.request("POST", "/api/v1/grouping", Some(&token), body.as_bytes());
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    change(json!({ "action": "compare", "version": 1 }));
    let before = settled(&hub, &token);
    assert!(
        before[0].0.starts_with("SIGSEGV invalid access in ledger"),
        "{before:?}"
    );
    let now = get(&hub, &token, "/api/v1/grouping");
    assert_eq!(
        (&now["version"], &now["next"]["keys"]),
        (&json!(2), &json!(1)),
        "{now}"
    );
    change(json!({ "action": "switch" }));
    let after = settled(&hub, &token);
    assert!(
        after[0].0.starts_with("SIGSEGV general protection in ledger"),
        "{after:?}"
    );
    assert_eq!(get(&hub, &token, "/api/v1/grouping")["version"], 1);
    assert_eq!(hub.stop().unwrap(), Some(0));
}
