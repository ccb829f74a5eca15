//! Small reports: a hub is filled with them, and their number per second is measured.

use super::Bench;
use super::events::{Events, HOSTS};
use super::http::parallel;
use crate::Failure;
use serde_json::Value;
use std::time::Duration;

/// Reports of one request.
const LIST: usize = 100;
/// Connections at once.
const CONNECTIONS: usize = 4;
/// Reports of the measurement with one report in a request.
const SINGLE: usize = 2000;
/// Connections at once with one report in a request: many hosts.
const MANY: usize = 32;

/// Sends heartbeats and reports, and prints how many a second.
pub fn fill(bench: &Bench, events: &Events, crashes: usize) -> Result<(), Failure> {
    let sender = &bench.sender;
    let hosts = parallel(CONNECTIONS, HOSTS, |at| {
        let body = events.heartbeat(at).to_string();
        sender
            .request("POST", "/api/v1/heartbeat", &[], body.as_bytes())
            .map(drop)
    })?;
    // Those that come one by one are the last ones.
    let single = SINGLE.min(crashes / 4);
    let listed = crashes - single;
    let lists = parallel(CONNECTIONS, listed.div_ceil(LIST), |at| {
        let numbers = (at * LIST)..((at + 1) * LIST).min(listed);
        let reports: Vec<Value> = numbers.map(|number| events.report(number)).collect();
        send(bench, reports)
    })?;
    let ones = parallel(MANY, single, |at| send(bench, vec![events.report(listed + at)]))?;
    println!("| reports of a hub | number | seconds | per second |\n|---|---:|---:|---:|");
    row(&format!("heartbeats, {CONNECTIONS} connections"), HOSTS, hosts);
    row(
        &format!("reports in lists of {LIST}, {CONNECTIONS} connections"),
        listed,
        lists,
    );
    row(&format!("reports one by one, {MANY} connections"), single, ones);
    println!();
    Ok(())
}

fn row(name: &str, count: usize, time: Duration) {
    let seconds = time.as_secs_f64();
    println!(
        "| {name} | {count} | {seconds:.1} | {:.0} |",
        count as f64 / seconds
    );
}

/// Sends reports, and checks that each has a receipt.
pub fn send(bench: &Bench, reports: Vec<Value>) -> Result<(), Failure> {
    let count = reports.len();
    let body = Value::Array(reports).to_string();
    let answer = bench
        .sender
        .request("POST", "/api/v1/reports", &[], body.as_bytes())?;
    let receipts: Value =
        serde_json::from_slice(&answer.body).map_err(|error| format!("the receipts: {error}"))?;
    match receipts.as_array().map(Vec::len) {
        Some(number) if number == count => Ok(()),
        found => Err(format!("{count} reports have {found:?} receipts")),
    }
}
