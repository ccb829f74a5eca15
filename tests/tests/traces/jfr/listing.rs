//! The samples of a recording as `jfr print --json` lists them.

use backtrail_profile::{Frame, LabelValue, Profile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The difference of times in nanoseconds, as the JDK converts ticks by floating-point numbers.
const ROUNDING: u64 = 1000;

/// The mark of a stack that the recorder cut.
const LOST: &str = "[cut]";

/// The event types that are listed.
const EVENTS: &str = "jdk.ExecutionSample,jdk.NativeMethodSample,jdk.ObjectAllocationInNewTLAB,\
                      jdk.ObjectAllocationOutsideTLAB,jdk.ObjectAllocationSample,\
                      jdk.JavaMonitorEnter,jdk.ThreadPark";

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    event: String,
    /// `None`: the recording does not describe the thread.
    tid: Option<u64>,
    /// The frames, the innermost first, each with its line.
    stack: Vec<String>,
    class: String,
    state: String,
    time: u64,
    weight: i64,
}

/// The samples of a recording.
pub struct Listing {
    samples: Vec<Listed>,
}

impl Listing {
    /// Returns the listing of the JDK. `interval` is the weight of a sample of the main event.
    pub fn of(file: &Path, interval: i64) -> Self {
        let mut print = Command::new("jfr");
        print.args(["print", "--json", "--stack-depth", "3000", "--events", EVENTS]);
        let run = print.arg(file).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let listing: Value = serde_json::from_slice(&run.stdout).unwrap();
        let main_event = main_event(file);
        let events = listing["recording"]["events"].as_array().unwrap().iter();
        let mut samples: Vec<_> = events
            .map(|event| listed(event, interval, main_event.as_deref()))
            .collect();
        samples.sort();
        Self { samples }
    }

    /// Returns the number of samples of an event.
    pub fn count(&self, event: &str) -> usize {
        self.samples.iter().filter(|sample| sample.event == event).count()
    }

    /// Returns the own weights of functions by event.
    pub fn own_weights(&self) -> BTreeMap<String, BTreeMap<String, i64>> {
        let mut events: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
        for sample in &self.samples {
            let name = sample
                .stack
                .first()
                .map_or("", |frame| frame.rsplit_once(':').unwrap().0);
            let functions = events.entry(sample.event.clone()).or_default();
            *functions.entry(name.to_owned()).or_default() += sample.weight;
        }
        events
    }

    /// Checks that a profile has these samples and no others.
    pub fn compare(&self, profile: &Profile) {
        let mut ours: Vec<_> = profile
            .samples
            .iter()
            .map(|sample| ours(profile, sample))
            .collect();
        ours.sort();
        assert_eq!(ours.len(), self.samples.len());
        for (ours, theirs) in ours.into_iter().zip(&self.samples) {
            let time = ours.time.abs_diff(theirs.time);
            let weight = ours.weight.abs_diff(theirs.weight);
            // Durations are converted, too.
            let is_duration = matches!(&*ours.event, "lock" | "park");
            assert!(time <= ROUNDING, "{ours:?}\n{theirs:?}");
            assert!(
                weight <= if is_duration { ROUNDING } else { 0 },
                "{ours:?}\n{theirs:?}"
            );
            let (time, weight) = (theirs.time, theirs.weight);
            assert_eq!(Listed { time, weight, ..ours }, *theirs);
        }
    }
}

/// Returns a name without the address of a hidden class at its end.
pub fn without_address(name: &str) -> String {
    let pattern = regex::Regex::new(r"[+/.]0x[0-9a-f]{8,}([/.]\d+)?$").unwrap();
    pattern.replace(name, "").into_owned()
}

/// Returns the event that async-profiler sampled, or `None` in a recording of the JVM.
fn main_event(file: &Path) -> Option<String> {
    let mut print = Command::new("jfr");
    print.args(["print", "--json", "--events", "jdk.ActiveSetting"]);
    let run = print.arg(file).output().unwrap();
    let listing: Value = serde_json::from_slice(&run.stdout).unwrap();
    let events = listing["recording"]["events"].as_array().unwrap();
    let mut values = events.iter().map(|event| &event["values"]);
    let event = values.find(|values| values["name"] == "event")?;
    Some(event["value"].as_str().unwrap().to_owned())
}

fn listed(event: &Value, interval: i64, main_event: Option<&str>) -> Listed {
    let values = &event["values"];
    let number = |name: &str| values[name].as_i64().unwrap();
    let duration = || (seconds(values["duration"].as_str().unwrap()) * 1e9).round() as i64;
    let tlab = if main_event.is_some() {
        "alloc"
    } else {
        "alloc-tlab"
    };
    let park = if main_event.is_some() { "lock" } else { "park" };
    let (name, weight) = match event["type"].as_str().unwrap() {
        "jdk.ExecutionSample" => (main_event.unwrap_or("samples"), interval),
        "jdk.NativeMethodSample" => ("native-samples", 1),
        "jdk.ObjectAllocationInNewTLAB" => (tlab, number("tlabSize")),
        "jdk.ObjectAllocationOutsideTLAB" => (tlab, number("allocationSize")),
        "jdk.ObjectAllocationSample" => ("alloc", number("weight")),
        "jdk.JavaMonitorEnter" => ("lock", duration()),
        "jdk.ThreadPark" => (park, duration()),
        other => panic!("unexpected {other}"),
    };
    let name = if name == "itimer" { "cpu" } else { name };
    let thread = match &values["sampledThread"] {
        Value::Null => &values["eventThread"],
        thread => thread,
    };
    let is_async = main_event.is_some();
    let frames = values["stackTrace"]["frames"].as_array();
    let frames = frames
        .into_iter()
        .flatten()
        .map(|frame| function(frame, is_async));
    let is_truncated = values["stackTrace"]["truncated"] == true;
    let stack = frames.chain(is_truncated.then(|| LOST.to_owned()));
    let classes = ["objectClass", "monitorClass", "parkedClass"];
    let class = classes.iter().find_map(|name| values[name]["name"].as_str());
    Listed {
        event: name.to_owned(),
        weight,
        time: nanoseconds(values["startTime"].as_str().unwrap()),
        tid: thread["osThreadId"].as_u64(),
        stack: stack.collect(),
        class: class.map(class_name).unwrap_or_default(),
        state: values["state"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Returns a frame's function and line.
fn function(frame: &Value, is_async: bool) -> String {
    let method = &frame["method"];
    let class = method["type"]["name"].as_str().unwrap();
    let name = method["name"].as_str().unwrap();
    let name = match frame["type"].as_str().unwrap() {
        "Kernel" => format!("{name}_[k]"),
        "C++" => name.to_owned(),
        "Native" if is_async => name.to_owned(),
        _ => format!("{}.{name}", class_name(class)),
    };
    // A frame without a line has 0 or -1.
    format!("{name}:{}", frame["lineNumber"].as_i64().unwrap().max(0))
}

/// Returns a class of Java. Arrays in the program have bytes or strings.
fn class_name(name: &str) -> String {
    match name {
        "[B" => "byte[]".to_owned(),
        _ => match name.strip_prefix("[L") {
            Some(element) => class_name(element.trim_end_matches(';')) + "[]",
            None => without_address(name).replace('/', "."),
        },
    }
}

/// Returns the seconds of a duration `PT1.5S`, with minutes or not.
fn seconds(text: &str) -> f64 {
    let text = text.strip_prefix("PT").unwrap().strip_suffix('S').unwrap();
    let (minutes, seconds) = text.split_once('M').unwrap_or(("0", text));
    minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
}

/// Returns the nanoseconds since the Unix epoch of a time `2026-01-31T10:20:30.5Z`, or with another
/// offset of whole hours.
fn nanoseconds(text: &str) -> u64 {
    let pattern = r"^(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)(?:\.(\d+))?(Z|[+-]\d+:00)$";
    let found = regex::Regex::new(pattern).unwrap().captures(text).unwrap();
    let part = |index: usize| found[index].parse::<i64>().unwrap();
    let (year, month, day) = (part(1), part(2), part(3));
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [
        31,
        28 + i64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let years: i64 = (1970..year).map(|year| 365 + i64::from(is_leap(year))).sum();
    let days = years + lengths[..month as usize - 1].iter().sum::<i64>() + day - 1;
    let offset = match &found[8] {
        "Z" => 0,
        offset => offset.split(':').next().unwrap().parse::<i64>().unwrap(),
    };
    let seconds = ((days * 24 + part(4) - offset) * 60 + part(5)) * 60 + part(6);
    let fraction = format!("{:0<9}", found.get(7).map_or("", |fraction| fraction.as_str()));
    seconds as u64 * 1_000_000_000 + fraction.parse::<u64>().unwrap()
}

/// Returns a sample of a profile in the form of the listing.
fn ours(profile: &Profile, sample: &backtrail_profile::Sample) -> Listed {
    let label = |key: &str| {
        let mut labels = profile.labels(sample.labels).iter();
        let found = labels.find(|label| profile.text(label.key) == key);
        match found.map(|label| label.value) {
            Some(LabelValue::Text(text)) => profile.text(text).to_owned(),
            _ => String::new(),
        }
    };
    let frame = |frame| match profile.frames.get(frame) {
        Some(Frame::Function { function, line }) => {
            let function = profile.functions.get(*function).unwrap();
            format!("{}:{line}", profile.text(function.name))
        }
        Some(Frame::Lost) => LOST.to_owned(),
        other => panic!("unexpected {other:?}"),
    };
    let event = profile.events.get(sample.event).unwrap();
    let thread = sample.thread.and_then(|thread| profile.threads.get(thread));
    Listed {
        event: profile.text(event.name).to_owned(),
        weight: sample.weight,
        time: sample.time.unwrap().0,
        tid: thread.map(|thread| thread.tid.0.into()),
        stack: profile.stacks.frames(sample.stack).map(frame).collect(),
        class: label("class"),
        state: label("state"),
    }
}
