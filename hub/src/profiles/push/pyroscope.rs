//! `POST /ingest` and `PusherService/Push` of Pyroscope's clients.
//!
//! Source: `pkg/ingester/pyroscope/ingest_handler.go` and `api/push/v1/push.proto` of Pyroscope.

use super::{FoldedEvent, MAX_LABELS, PushedProfile, check_count, check_memory};
use crate::error::{Error, Result};
use backtrail_profile::format::decoded_size::{FieldShape, MessageShape};
use prost::Message;
use serde::Deserialize;

/// The formats of `POST /ingest` that the hub reads, besides none: folded stacks.
const FORMATS: [&str; 5] = ["", "folded", "lines", "pprof", "jfr"];

/// The parameters of `POST /ingest`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct IngestParameters {
    /// The application with its labels, as `shop.cpu{region=eu}`.
    #[serde(default)]
    pub name: String,
    /// The start, in seconds, milliseconds, microseconds or nanoseconds since 1970.
    #[serde(default)]
    pub from: String,
    /// The end.
    #[serde(default)]
    pub until: String,
    /// The format.
    #[serde(default)]
    pub format: String,
    /// The client, as `javaspy`.
    #[serde(default, rename = "spyName")]
    pub spy_name: String,
    /// The unit of folded stacks, as `samples` or `bytes`.
    #[serde(default)]
    pub units: String,
    /// The samples of a second, if folded stacks count samples of processor time.
    #[serde(default, rename = "sampleRate")]
    pub sample_rate: String,
}

/// Returns the profile of `POST /ingest`. `bytes` is the body, or the part `profile` of a form.
///
/// # Errors
/// Fails if a parameter is malformed, or the format is unknown.
pub fn ingested(parameters: &IngestParameters, bytes: Vec<u8>) -> Result<PushedProfile> {
    let IngestParameters {
        name,
        from,
        until,
        format,
        spy_name,
        units,
        sample_rate,
    } = parameters;
    if !FORMATS.contains(&format.as_str()) {
        return Err(Error::Invalid(format!(
            "the format \"{format}\" is unknown; use pprof, jfr, folded or lines"
        )));
    }
    let mut labels = labels_of_name(name)?;
    if !spy_name.is_empty() {
        labels.push(("spy_name".to_owned(), spy_name.clone()));
    }
    let bytes = match format.as_str() {
        "lines" => counted(&bytes),
        _ => bytes,
    };
    let (start, end) = (nanoseconds("from", from)?, nanoseconds("until", until)?);
    Ok(PushedProfile {
        labels,
        bytes,
        start,
        duration: start.zip(end).map(|(start, end)| end.saturating_sub(start)),
        may_be_empty: false,
        folded: match format.as_str() {
            "pprof" | "jfr" => None,
            _ => folded_event(units, sample_rate)?,
        },
    })
}

/// Returns the event of folded stacks by the names of Pyroscope. `None`: nothing is stated.
fn folded_event(units: &str, rate: &str) -> Result<Option<FoldedEvent>> {
    const SECOND: u64 = 1_000_000_000;
    let event = |name, unit, factor| Ok(Some(FoldedEvent { name, unit, factor }));
    let count = |name| event(name, "count", 1);
    match (units, rate) {
        ("" | "samples", "") => Ok(None),
        ("" | "samples", rate) => match rate.parse() {
            Ok(rate @ 1..=SECOND) => event("cpu", "nanoseconds", SECOND / rate),
            _ => Err(Error::Invalid(format!(
                "sampleRate is a number from 1 to {SECOND}"
            ))),
        },
        ("bytes", _) => event("memory", "bytes", 1),
        ("objects", _) => count("objects"),
        ("goroutines", _) => count("goroutines"),
        ("lock_samples", _) => count("lock_samples"),
        ("lock_nanoseconds", _) => event("lock", "nanoseconds", 1),
        _ => Err(Error::Invalid(format!(
            "the unit \"{}\" is unknown; use samples, bytes, objects, goroutines, lock_samples or lock_nanoseconds",
            units.chars().take(64).collect::<String>().escape_debug()
        ))),
    }
}

/// Returns folded stacks of lines that are a stack each, and count one sample.
fn counted(lines: &[u8]) -> Vec<u8> {
    let lines = lines.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut folded = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        folded.extend_from_slice(line);
        folded.extend_from_slice(b" 1\n");
    }
    folded
}

/// Returns the labels of a name as `shop.cpu{region=eu,host="a"}`. The text before the brace is the
/// service.
///
/// # Errors
/// Fails if the name is empty, or a label has no value.
pub fn labels_of_name(name: &str) -> Result<Vec<(String, String)>> {
    let malformed = || {
        Error::Invalid(format!(
            "the name \"{}\" is malformed; it is like shop{{region=eu,host=a}}",
            name.chars().take(200).collect::<String>()
        ))
    };
    let (service, rest) = match name.split_once('{') {
        Some((service, rest)) => (service, rest.strip_suffix('}').ok_or_else(malformed)?),
        None => (name, ""),
    };
    if service.trim().is_empty() {
        return Err(malformed());
    }
    let mut labels = vec![("service_name".to_owned(), service.trim().to_owned())];
    for pair in rest.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(malformed)?;
        let value = value.trim().trim_matches('"');
        labels.push((key.trim().to_owned(), value.to_owned()));
        if labels.len() > MAX_LABELS {
            return Err(Error::TooLarge(format!(
                "a profile has at most {MAX_LABELS} labels"
            )));
        }
    }
    Ok(labels)
}

/// Returns a time in nanoseconds. The number of digits decides its unit. `None`: the text is empty.
fn nanoseconds(name: &str, text: &str) -> Result<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    let factor = match text.len() {
        ..=11 => 1_000_000_000,
        12..=14 => 1_000_000,
        15..=17 => 1000,
        _ => 1,
    };
    let number: Option<u64> = text.parse().ok();
    let time = number.and_then(|number| number.checked_mul(factor));
    time.map(Some)
        .ok_or_else(|| Error::Invalid(format!("{name} is no time since 1970")))
}

/// The request of `PusherService/Push`.
#[derive(Clone, PartialEq, Message)]
pub struct PushRequest {
    /// The profiles by label set.
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<RawProfileSeries>,
}

/// The profiles of a label set.
#[derive(Clone, PartialEq, Message)]
pub struct RawProfileSeries {
    /// The labels.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelPair>,
    /// The profiles.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<RawSample>,
}

/// A label.
#[derive(Clone, PartialEq, Message)]
pub struct LabelPair {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A profile.
#[derive(Clone, PartialEq, Message)]
pub struct RawSample {
    /// The pprof profile, with gzip or without.
    #[prost(bytes = "vec", tag = "1")]
    pub raw_profile: Vec<u8>,
    /// The profile's identifier.
    #[prost(string, tag = "2")]
    pub id: String,
}

/// The empty answer.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct PushResponse {}

static REQUEST: MessageShape = MessageShape {
    size: size_of::<PushRequest>(),
    fields: &[(1, FieldShape::Message(&SERIES))],
};

static SERIES: MessageShape = MessageShape {
    size: size_of::<RawProfileSeries>(),
    fields: &[
        (1, FieldShape::Message(&LABEL)),
        (2, FieldShape::Message(&SAMPLE)),
    ],
};

static LABEL: MessageShape = MessageShape {
    size: size_of::<LabelPair>(),
    fields: &[(1, FieldShape::Bytes), (2, FieldShape::Bytes)],
};

static SAMPLE: MessageShape = MessageShape {
    size: size_of::<RawSample>(),
    fields: &[(1, FieldShape::Bytes), (2, FieldShape::Bytes)],
};

/// Reads a request of `PusherService/Push`.
///
/// # Errors
/// Fails if the message is malformed, or has no profile or too many.
pub fn read(message: &[u8]) -> Result<Vec<PushedProfile>> {
    check_memory(message, &REQUEST)?;
    let request = PushRequest::decode(message)
        .map_err(|error| Error::Invalid(format!("the message is no PushRequest of Pyroscope: {error}")))?;
    let mut profiles = Vec::new();
    for series in request.series {
        let labels = series
            .labels
            .into_iter()
            .map(|label| (label.name, label.value))
            .collect();
        let samples = series.samples.into_iter().map(|sample| sample.raw_profile);
        profiles.extend(PushedProfile::of_series(labels, samples)?);
    }
    check_count(&profiles)?;
    Ok(profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(name: &str, from: &str, until: &str, format: &str) -> IngestParameters {
        IngestParameters {
            name: name.to_owned(),
            from: from.to_owned(),
            until: until.to_owned(),
            format: format.to_owned(),
            ..IngestParameters::default()
        }
    }

    #[test]
    fn folded_stacks_have_the_stated_unit() {
        let event = |units: &str, rate: &str| folded_event(units, rate).unwrap();
        let cpu = event("samples", "100").unwrap();
        assert_eq!(
            (cpu.name, cpu.unit, cpu.factor),
            ("cpu", "nanoseconds", 10_000_000)
        );
        assert_eq!(event("", "50").unwrap().factor, 20_000_000);
        assert_eq!(event("", ""), None);
        let memory = event("bytes", "100").unwrap();
        assert_eq!((memory.name, memory.unit, memory.factor), ("memory", "bytes", 1));
        assert!(folded_event("parsecs", "").is_err());
        for rate in ["0", "-1", "fast", "2000000000"] {
            assert!(folded_event("samples", rate).is_err(), "{rate}");
        }
        let mut pprof = parameters("shop", "", "", "pprof");
        pprof.units = "bytes".to_owned();
        assert_eq!(ingested(&pprof, vec![]).unwrap().folded, None);
    }

    #[test]
    fn names_have_labels() {
        let text = |labels: Vec<(String, String)>| {
            let pairs: Vec<_> = labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            pairs.join(" ")
        };
        let read = |name: &str| text(labels_of_name(name).unwrap());
        assert_eq!(read("shop.cpu"), "service_name=shop.cpu");
        assert_eq!(read("shop{}"), "service_name=shop");
        assert_eq!(
            read("shop{region=eu, host=\"a=b\"}"),
            "service_name=shop region=eu host=a=b"
        );
        for malformed in ["", "{a=b}", "shop{a}", "shop{a=b"] {
            let error = labels_of_name(malformed).unwrap_err().to_string();
            assert!(error.contains("is malformed"), "{error}");
        }
    }

    #[test]
    fn times_are_read_in_each_unit() {
        for (from, until) in [
            ("1700000000", "1700000010"),
            ("1700000000000", "1700000010000"),
            ("1700000000000000", "1700000010000000"),
            ("1700000000000000000", "1700000010000000000"),
        ] {
            let profile = ingested(&parameters("shop", from, until, ""), vec![]).unwrap();
            assert_eq!(profile.start, Some(1_700_000_000_000_000_000), "{from}");
            assert_eq!(profile.duration, Some(10_000_000_000), "{from}");
        }
        let error = ingested(&parameters("shop", "now-10s", "", ""), vec![]).unwrap_err();
        assert_eq!(error.to_string(), "from is no time since 1970");
    }

    #[test]
    fn lines_count_one_sample_each() {
        let lines = b"main;f\r\nmain;f\n\nmain;operator new(unsigned long)".to_vec();
        let profile = ingested(&parameters("shop", "", "", "lines"), lines.clone()).unwrap();
        let expected = b"main;f 1\nmain;f 1\nmain;operator new(unsigned long) 1\n";
        assert_eq!(profile.bytes, expected);
        let other = ingested(&parameters("shop", "", "", "folded"), lines.clone()).unwrap();
        assert_eq!(other.bytes, lines);
    }

    #[test]
    fn unknown_formats_are_refused() {
        let error = ingested(&parameters("shop", "", "", "trie"), vec![]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the format \"trie\" is unknown; use pprof, jfr, folded or lines"
        );
    }

    #[test]
    fn pushed_series_become_profiles() {
        let request = PushRequest {
            series: vec![RawProfileSeries {
                labels: vec![LabelPair {
                    name: "service_name".to_owned(),
                    value: "shop".to_owned(),
                }],
                samples: vec![RawSample {
                    raw_profile: b"profile".to_vec(),
                    id: String::new(),
                }],
            }],
        };
        let profiles = read(&request.encode_to_vec()).unwrap();
        assert_eq!(profiles.len(), 1);
        assert_eq!(profiles[0].bytes, b"profile");
        assert_eq!(profiles[0].labels[0].1, "shop");
    }
}
