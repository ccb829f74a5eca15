//! `debug LINK` and `open LINK`.

use super::{User, crash};
use backtrail_tests::hub_server::HubServer;
use std::fs;
use std::process::Command;

const ID: &str = "0123456789abcdefghjk";

/// Offers the packed bundle of a crash, and returns its link.
fn offered(hub: &HubServer, user: &User) -> String {
    let bundle = crash(user.home());
    let packed = user.home().join("offered.btz");
    let _ = user
        .run(&["pack", bundle.to_str().unwrap(), "-o", packed.to_str().unwrap()])
        .exited(0);
    let sum = Command::new("sha256sum").arg(&packed).output().unwrap();
    let digest = String::from_utf8_lossy(&sum.stdout)
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    let content = fs::read(&packed).unwrap();
    hub.state().downloads.insert(ID.to_owned(), (content, digest));
    format!("{}/c/{ID}", hub.address)
}

fn downloads(hub: &HubServer) -> usize {
    let state = hub.state();
    state
        .requests
        .iter()
        .filter(|request| request.starts_with("GET /crash/"))
        .count()
}

#[test]
fn link_is_debugged_at_its_position_and_downloaded_once() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let link = offered(&hub, &user);
    let run = user
        .run(&["debug", &link, "--batch", "-e", "backtrace"])
        .exited(0);
    assert!(
        run.stdout.contains("post") && run.stdout.contains("settle"),
        "{}",
        run.stdout
    );
    let run = user
        .run(&["debug", &link, "--batch", "--json", "-e", "reverse-step"])
        .exited(0);
    let line: serde_json::Value = serde_json::from_str(run.stdout.lines().nth(1).unwrap()).unwrap();
    let position = line["result"]["place"]["position"].as_str().unwrap().to_owned();
    let at = format!("{link}#{position}");
    let run = user.run(&["debug", &at, "--batch", "--json"]).exited(0);
    let line: serde_json::Value = serde_json::from_str(run.stdout.lines().nth(1).unwrap()).unwrap();
    assert_eq!(line["result"]["place"]["position"], position);
    assert_eq!(downloads(&hub), 1);
    // A damaged copy is fetched again.
    let kept = fs::read_dir(user.home().join(".cache/backtrail/crashes"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    fs::write(kept.path(), "damaged").unwrap();
    let _ = user
        .run(&["debug", &link, "--batch", "-e", "backtrace"])
        .exited(0);
    assert_eq!(downloads(&hub), 2);
}

#[test]
fn damaged_and_missing_bundles_are_not_kept() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let link = offered(&hub, &user);
    if let Some((content, _)) = hub.state().downloads.get_mut(ID) {
        content.push(0);
    }
    let run = user.run(&["debug", &link, "--batch"]).exited(1);
    assert!(
        run.sentence().contains("was damaged on its way"),
        "{}",
        run.stderr
    );
    hub.state().downloads.clear();
    let run = user.run(&["debug", &link, "--batch"]).exited(1);
    assert!(run.sentence().contains("404"), "{}", run.stderr);
    let kept = fs::read_dir(user.home().join(".cache/backtrail/crashes")).unwrap();
    assert_eq!(kept.count(), 0);
    let run = user
        .run(&["debug", "https://hub.example.com/g/1", "--batch"])
        .exited(2);
    assert!(
        run.sentence().contains("is not a link to a crash"),
        "{}",
        run.stderr
    );
}

#[test]
fn token_does_not_go_to_the_hub_of_another_link() {
    let (hub, other, user) = (
        HubServer::start().unwrap(),
        HubServer::start().unwrap(),
        User::new(),
    );
    user.login(&hub);
    let link = offered(&other, &user);
    let run = user.run(&["debug", &link, "--batch"]).exited(1);
    assert!(run.sentence().contains("backtrail login"), "{}", run.stderr);
}

#[test]
fn open_prints_the_link_for_vscode() {
    let user = User::new();
    let run = user
        .run(&["open", "--print", &format!("https://hub.example.com/c/{ID}#t1#2")])
        .exited(0);
    assert!(
        run.stdout.starts_with("vscode://backtrail.backtrail/open?j="),
        "{}",
        run.stdout
    );
    let run = user.run(&["open", "--print", "/tmp/bundle"]).exited(2);
    assert!(run.sentence().contains("is not a link"), "{}", run.stderr);
}
