//! speedscope's file format: one sampled profile for each event and thread, or a timeline.
//!
//! Source: `https://www.speedscope.app/file-format-schema.json`.

mod timeline;

pub use timeline::TimelineWriter;

use crate::Result;
use crate::function_profile::{FunctionProfile, SiteSample, SymbolId};
use crate::profile::Profile;
use crate::sample::{EventId, ThreadId};
use crate::table::Id;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// The address of the format's schema, which names the format.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    profiles: Vec<Sampled>,
    shared: Shared<'a>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<SpeedscopeFrame<'a>>,
}

/// A function.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SpeedscopeFrame<'a> {
    /// The name.
    pub name: &'a str,
    /// The source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<&'a str>,
    /// The line of the declaration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// The functions of each sample, the outermost first.
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes a profile. Samples are in the order of their times; negative weights are left out.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, functions: &FunctionProfile, name: &str, out: &mut dyn Write) -> Result<()> {
    let mut groups: BTreeMap<(EventId, Option<ThreadId>), Vec<&SiteSample>> = BTreeMap::new();
    for sample in functions.samples.iter().filter(|sample| sample.weight > 0) {
        let group = groups.entry((sample.event, sample.thread)).or_default();
        group.push(sample);
    }
    let mut profiles = Vec::with_capacity(groups.len());
    for ((event, thread), mut samples) in groups {
        samples.sort_by_key(|sample| sample.time);
        profiles.push(sampled(profile, functions, event, thread, &samples));
    }
    let frames = functions.symbols.iter().map(|(_, symbol)| SpeedscopeFrame {
        name: &symbol.name,
        file: Some(&*symbol.file).filter(|file| !file.is_empty()),
        line: None,
    });
    let file = File {
        schema: SCHEMA,
        exporter: "backtrail",
        name,
        profiles,
        shared: Shared {
            frames: frames.collect(),
        },
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)?;
    Ok(())
}

fn sampled(
    profile: &Profile,
    functions: &FunctionProfile,
    event: EventId,
    thread: Option<ThreadId>,
    samples: &[&SiteSample],
) -> Sampled {
    let stack = |sample: &&SiteSample| {
        let sites = functions.stacks.frames(sample.stack);
        let mut stack: Vec<_> = sites.map(|site| frame_number(site.symbol)).collect();
        stack.reverse();
        stack
    };
    let weights: Vec<_> = samples.iter().map(|sample| sample.weight as u64).collect();
    Sampled {
        kind: "sampled",
        name: title(profile, event, thread),
        unit: unit(profile, event),
        start_value: 0,
        end_value: weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight)),
        samples: samples.iter().map(stack).collect(),
        weights,
    }
}

fn frame_number(symbol: SymbolId) -> u32 {
    symbol.index() as u32
}

fn title(profile: &Profile, event: EventId, thread: Option<ThreadId>) -> String {
    let event = profile
        .events
        .get(event)
        .map_or("", |event| profile.text(event.name));
    match thread.and_then(|thread| profile.threads.get(thread)) {
        None => event.to_owned(),
        Some(thread) => format!(
            "{event}, {} {} ({})",
            profile.text(thread.process_name),
            thread.tid,
            profile.text(thread.name)
        ),
    }
}

/// Returns the unit as the format names it.
fn unit(profile: &Profile, event: EventId) -> &'static str {
    match profile.events.get(event).map(|event| profile.text(event.unit)) {
        Some("nanoseconds") => "nanoseconds",
        Some("microseconds") => "microseconds",
        Some("milliseconds") => "milliseconds",
        Some("seconds") => "seconds",
        Some("bytes") => "bytes",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::folded;

    #[test]
    fn samples_have_stacks_and_weights() {
        let profile = folded::read("main;f 2\nmain 1\n".as_bytes()).unwrap();
        let functions = FunctionProfile::new(&profile).unwrap();
        let mut out = Vec::new();
        write(&profile, &functions, "test", &mut out).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let sampled = &file["profiles"][0];
        assert_eq!(sampled["samples"], serde_json::json!([[0, 1], [0]]));
        assert_eq!(sampled["weights"], serde_json::json!([2, 1]));
        assert_eq!(sampled["endValue"], 3);
        assert_eq!(file["shared"]["frames"][1]["name"], "f");
    }
}
