//! Times of pages over many crashes.

use super::Bench;
use super::events::{Events, build, host, identifier, service};
use super::http::Client;
use super::reports::send;
use super::times::Times;
use crate::Failure;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests of each row.
const REQUESTS: usize = 300;

/// Opens all kinds of pages, and prints their times. `crash` has a bundle.
pub fn measure(bench: &Bench, events: &Events, crashes: usize, crash: &str) -> Result<(), Failure> {
    let reader = &bench.reader;
    let groups = groups(reader)?;
    let next = next_page(reader)?;
    let numbered = |path: &dyn Fn(usize) -> String| (0..REQUESTS).map(path).collect::<Vec<_>>();
    let group = |at: usize| groups.get(at % groups.len().max(1)).cloned().unwrap_or_default();
    let rows = [
        ("list", numbered(&|_| "/".to_owned())),
        ("list, second page", numbered(&|_| next.clone())),
        ("list, by reports", numbered(&|_| "/?sort=reports".to_owned())),
        (
            "list of a service",
            numbered(&|at| format!("/?service={}", service(at % 40))),
        ),
        (
            "list of a state",
            numbered(&|_| "/?state=new&sort=hosts".to_owned()),
        ),
        (
            "list of a build",
            numbered(&|at| format!("/?build={}", build(at % 12))),
        ),
        (
            "list of a host",
            numbered(&|at| format!("/?host={}", host(at % 2000))),
        ),
        (
            "search, 25 groups",
            numbered(&|at| format!("/?q={}", service(at % 40))),
        ),
        ("search, all groups", numbered(&|_| "/?q=srv+sigsegv".to_owned())),
        ("search, start of a word", numbered(&|_| "/?q=led".to_owned())),
        ("search, nothing", numbered(&|at| format!("/?q=nothing{at}"))),
        ("group", numbered(&|at| format!("/g/{}", group(at)))),
        ("largest group", numbered(&|_| format!("/g/{}", group(0)))),
        (
            "crash without a bundle",
            numbered(&|at| format!("/c/{}", identifier(at * 7 % crashes))),
        ),
        ("crash with a bundle", numbered(&|_| format!("/c/{crash}"))),
    ];
    println!("| page | bytes | p50 ms | p99 ms | max ms |\n|---|---:|---:|---:|---:|");
    for (name, paths) in rows {
        row(reader, name, &paths)?;
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut at = crashes;
            while !is_over.load(Ordering::Relaxed) {
                send(
                    bench,
                    (at..at + 100).map(|number| events.report(number)).collect(),
                )?;
                at += 100;
            }
            Ok::<_, Failure>(at - crashes)
        });
        let measured = row(
            reader,
            "list, while reports arrive",
            &numbered(&|_| "/".to_owned()),
        );
        is_over.store(true, Ordering::Relaxed);
        let sent = load.join().map_err(|_| "the sender panicked".to_owned())??;
        println!("\nDuring the last row {sent} reports arrived.\n");
        measured
    })
}

fn row(reader: &Client, name: &str, paths: &[String]) -> Result<(), Failure> {
    let mut times = Times::default();
    let mut bytes = 0;
    for path in paths {
        let answer = reader.request("GET", path, &[("Accept", "text/html")], b"")?;
        bytes = bytes.max(answer.body.len());
        times.push(answer.time);
    }
    println!("| {name} | {bytes} | {} |", times.columns());
    Ok(())
}

/// Returns groups, the largest first.
fn groups(reader: &Client) -> Result<Vec<String>, Failure> {
    let answer = reader.request("GET", "/api/v1/groups?sort=reports&limit=200", &[], b"")?;
    let list: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    let groups = list["groups"].as_array().cloned().unwrap_or_default();
    let ids: Vec<String> = groups
        .iter()
        .filter_map(|group| group["id"].as_str().map(str::to_owned))
        .collect();
    if ids.is_empty() {
        return Err("the hub has no groups".to_owned());
    }
    Ok(ids)
}

/// Returns the address of the second page of the list.
fn next_page(reader: &Client) -> Result<String, Failure> {
    let answer = reader.request("GET", "/", &[], b"")?;
    let page = String::from_utf8_lossy(&answer.body).into_owned();
    let found = page
        .split("href=\"")
        .find(|text| text.starts_with("/?") && text.contains("after="));
    let address = found.and_then(|text| text.split('"').next()).unwrap_or("/");
    Ok(address.replace("&amp;", "&"))
}
