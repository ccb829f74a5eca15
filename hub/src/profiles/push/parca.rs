//! `WriteRaw` of Parca's clients.
//!
//! Source: `parca/profilestore/v1alpha1/profilestore.proto`.

use super::{PushedProfile, check_count, check_memory};
use crate::error::{Error, Result};
use backtrail_profile::format::decoded_size::{FieldShape, MessageShape};
use prost::Message;

/// Profiles with their labels.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRawRequest {
    /// The profiles by label set.
    #[prost(message, repeated, tag = "2")]
    pub series: Vec<RawProfileSeries>,
}

/// The profiles of a label set.
#[derive(Clone, PartialEq, Message)]
pub struct RawProfileSeries {
    /// The labels.
    #[prost(message, optional, tag = "1")]
    pub labels: Option<LabelSet>,
    /// The profiles.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<RawSample>,
}

/// Labels.
#[derive(Clone, PartialEq, Message)]
pub struct LabelSet {
    /// The labels.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
}

/// A label.
#[derive(Clone, PartialEq, Message)]
pub struct Label {
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
}

/// The empty answer.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WriteRawResponse {}

static REQUEST: MessageShape = MessageShape {
    size: size_of::<WriteRawRequest>(),
    fields: &[(2, FieldShape::Message(&SERIES))],
};

static SERIES: MessageShape = MessageShape {
    size: size_of::<RawProfileSeries>(),
    fields: &[
        (1, FieldShape::Message(&LABELS)),
        (2, FieldShape::Message(&SAMPLE)),
    ],
};

static LABELS: MessageShape = MessageShape {
    size: 0,
    fields: &[(1, FieldShape::Message(&LABEL))],
};

static LABEL: MessageShape = MessageShape {
    size: size_of::<Label>(),
    fields: &[(1, FieldShape::Bytes), (2, FieldShape::Bytes)],
};

static SAMPLE: MessageShape = MessageShape {
    size: size_of::<RawSample>(),
    fields: &[(1, FieldShape::Bytes)],
};

/// Reads a request.
///
/// # Errors
/// Fails if the message is malformed, or has no profile or too many.
pub fn read(message: &[u8]) -> Result<Vec<PushedProfile>> {
    check_memory(message, &REQUEST)?;
    let request = WriteRawRequest::decode(message)
        .map_err(|error| Error::Invalid(format!("the message is no WriteRawRequest of Parca: {error}")))?;
    of_message(request)
}

fn of_message(request: WriteRawRequest) -> Result<Vec<PushedProfile>> {
    let mut profiles = Vec::new();
    for series in request.series {
        let labels = series
            .labels
            .unwrap_or_default()
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

    #[test]
    fn each_profile_has_the_labels_of_its_series() {
        let label = |name: &str, value: &str| Label {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let sample = |byte| RawSample {
            raw_profile: vec![byte],
        };
        let request = WriteRawRequest {
            series: vec![
                RawProfileSeries {
                    labels: Some(LabelSet {
                        labels: vec![label("job", "shop")],
                    }),
                    samples: vec![sample(1), sample(2)],
                },
                RawProfileSeries {
                    labels: None,
                    samples: vec![sample(3)],
                },
            ],
        };
        let profiles = read(&request.encode_to_vec()).unwrap();
        let found: Vec<_> = profiles
            .iter()
            .map(|profile| (profile.labels.len(), profile.bytes[0]))
            .collect();
        assert_eq!(found, [(1, 1), (1, 2), (0, 3)]);
        assert_eq!(profiles[0].labels[0], ("job".to_owned(), "shop".to_owned()));
    }

    #[test]
    fn other_bytes_are_refused() {
        let error = read(b"\xff\xff\xff").unwrap_err().to_string();
        assert!(error.starts_with("the message is no WriteRawRequest"), "{error}");
        let error = read(b"").unwrap_err().to_string();
        assert!(error.starts_with("the message has no profile"), "{error}");
    }
}
