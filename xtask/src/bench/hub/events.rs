//! The crashes of the benchmark, as reports of the hub and as events of Sentry's format.

use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Services, each with builds and hosts of its own.
const SERVICES: usize = 40;
/// Builds of a service.
const BUILDS: usize = 12;
/// Hosts, each of which runs one build of each service.
pub const HOSTS: usize = 2000;
/// The days over which crashes are spread.
const DAYS: u64 = 28;
/// Frames of a stack.
const FRAMES: usize = 12;
/// Names of services and of their functions.
const NAMES: [&str; 10] = [
    "ledger", "transfer", "balance", "routing", "session", "catalog", "payment", "search", "stream",
    "archive",
];
/// Digits of a report's identifier.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Crashes that are computed from their number.
#[derive(Clone, Copy, Debug)]
pub struct Events {
    groups: usize,
    /// The end of the time over which they are spread, in microseconds since 1970.
    end: u64,
}

/// Returns well-mixed bits of a number (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// One crash.
struct Crash {
    group: usize,
    service: String,
    build: usize,
    host: usize,
    /// In microseconds since 1970.
    time: u64,
    bits: u64,
}

impl Events {
    /// Returns crashes of this number of groups, up to now.
    pub fn new(groups: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            groups,
            end: u64::try_from(now.as_micros()).unwrap_or_default(),
        }
    }

    fn crash(&self, at: usize) -> Crash {
        let bits = mixed(at as u64);
        // Each group has a crash, and the first groups have most.
        let share = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let group = if at < self.groups {
            at
        } else {
            (share.powi(3) * self.groups as f64) as usize
        };
        let age = mixed(bits) % (DAYS * 86_400_000_000);
        Crash {
            group,
            service: service(group % SERVICES),
            build: (mixed(bits ^ 1) as usize) % BUILDS,
            host: (mixed(bits ^ 2) as usize) % HOSTS,
            time: self.end.saturating_sub(age),
            bits,
        }
    }

    /// Returns a crash as a report.
    pub fn report(&self, at: usize) -> Value {
        let crash = self.crash(at);
        let module = format!("/srv/{0}/bin/{0}", crash.service);
        let build_id = format!(
            "{:016x}",
            mixed((crash.group % SERVICES * BUILDS + crash.build) as u64)
        );
        let frames: Vec<Value> = offsets(crash.group)
            .map(|offset| json!({ "module": module, "build_id": build_id, "offset": offset }))
            .collect();
        json!({
            "version": 1,
            "id": identifier(at),
            "time": crash.time,
            "host": host(crash.host),
            "service": crash.service,
            "build": build(crash.build),
            "executable": module,
            "signal": 11,
            "code": 1,
            "fault_address": crash.bits & 0xffff,
            "pid": 4242,
            "tid": 4243,
            "thread": "worker",
            "kernel": format!("6.{}.9", 1 + crash.host % 12),
            "cpu": "6/151/2",
            "labels": { "route": format!("/{}/{}", crash.service, crash.bits % 7), "tenant": format!("t{}", crash.bits % 50) },
            "frames": frames,
            "bundle_size": 1 << 20,
        })
    }

    /// Returns the same crash as an event of a Sentry client. Its functions have names, because
    /// Bugsink groups by names.
    pub fn event(&self, at: usize) -> Value {
        let crash = self.crash(at);
        let mut frames: Vec<Value> = offsets(crash.group)
            .map(|offset| {
                json!({
                    "function": format!("{}_{offset:x}", crash.service), "filename": format!("{}.c", crash.service),
                    "lineno": offset % 900, "in_app": true, "instruction_addr": format!("{offset:#x}"),
                })
            })
            .collect();
        frames.reverse();
        json!({
            "event_id": format!("{:016x}{:016x}", mixed(crash.bits ^ 3), mixed(crash.bits ^ 4)),
            "timestamp": crash.time as f64 / 1e6,
            "platform": "native",
            "level": "fatal",
            "server_name": host(crash.host),
            "release": format!("{}@{}", crash.service, build(crash.build)),
            "environment": "production",
            "tags": { "route": format!("/{}/{}", crash.service, crash.bits % 7), "tenant": format!("t{}", crash.bits % 50) },
            "exception": { "values": [{
                "type": "SIGSEGV",
                "value": format!("{}_{:x}", crash.service, offsets(crash.group).next().unwrap_or_default()),
                "stacktrace": { "frames": frames },
            }] },
        })
    }

    /// Returns the heartbeat of a host, which runs one build of each service.
    pub fn heartbeat(&self, host_number: usize) -> Value {
        let running: Vec<Value> = (0..SERVICES)
            .map(|at| {
                let number = (mixed((host_number * SERVICES + at) as u64) as usize) % BUILDS;
                let since = self.end - DAYS * 86_400_000_000 / BUILDS as u64 * (BUILDS - number) as u64;
                json!({ "service": service(at), "build": build(number), "since": since })
            })
            .collect();
        json!({ "version": 1, "host": host(host_number), "collector": "0.7.0", "running": running })
    }
}

/// Returns the name of a service.
pub fn service(number: usize) -> String {
    format!(
        "{}{}",
        NAMES.get(number % NAMES.len()).unwrap_or(&"service"),
        number / NAMES.len()
    )
}

/// Returns the name of a build.
pub fn build(number: usize) -> String {
    format!("2026.11.{}", 1 + number)
}

/// Returns the name of a host.
pub fn host(number: usize) -> String {
    format!("web-{number}")
}

/// Returns the offsets of a group's frames, innermost first. Groups of a service share outer ones.
fn offsets(group: usize) -> impl Iterator<Item = u64> {
    (0..FRAMES).map(move |depth| {
        let seed = if depth < 6 {
            group + 1_000_000
        } else {
            group % SERVICES
        };
        0x1000 + mixed((seed * FRAMES + depth) as u64) % 0x40_0000
    })
}

/// Returns the identifier of a report.
pub fn identifier(at: usize) -> String {
    let (one, two) = (mixed(at as u64 ^ 0x5555), mixed(at as u64 ^ 0xaaaa_aaaa));
    let digit = |place: usize| {
        let bits = if place < 10 {
            one >> (5 * place)
        } else {
            two >> (5 * (place - 10))
        };
        DIGITS.get((bits & 31) as usize).copied().unwrap_or(b'0')
    };
    (0..20).map(|place| char::from(digit(place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn crashes_have_all_groups_and_ids_of_their_own() {
        let events = Events::new(50);
        let of_group = |at| events.report(at)["frames"][0]["offset"].to_string();
        let groups: HashSet<_> = (0..500).map(of_group).collect();
        assert_eq!(groups.len(), 50);
        let ids: HashSet<_> = (0..10_000).map(identifier).collect();
        assert_eq!(ids.len(), 10_000);
        assert_eq!(events.report(7), events.report(7));
        assert_eq!(events.event(7)["exception"]["values"][0]["type"], "SIGSEGV");
    }
}
