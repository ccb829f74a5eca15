//! Profiles that are written and read back, and damaged ones.

use super::*;
use crate::frame::{Frame, Module};
use crate::profile::Profile;
use crate::sample::{Label, LabelValue, Sample, Thread, UnixNanos};
use crate::stacks::StackId;
use crate::{FunctionProfile, format};
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};

/// Returns a profile with two events, times, a thread, labels and a link.
fn rich() -> Profile {
    let mut profile = Profile::default();
    let cpu = profile.event("cpu", "nanoseconds", 10_000_000).unwrap();
    let count = profile.event("samples", "count", 0).unwrap();
    let text = |profile: &mut Profile, text: &str| profile.string(text).unwrap();
    let module = Module {
        build_id: BuildId::new(&[0xab; 20]),
        path: text(&mut profile, "/usr/bin/server"),
    };
    let module = profile.modules.intern(module).unwrap();
    let function = profile.function("serve").unwrap();
    let mut stack = StackId::EMPTY;
    for frame in [
        Frame::Lost,
        Frame::Address(0x7fff_1234),
        Frame::Code {
            module,
            offset: FileOffset(0x1234),
        },
        Frame::Function { function, line: 7 },
    ] {
        let frame = profile.frames.intern(frame).unwrap();
        stack = profile.stacks.push(stack, frame).unwrap();
    }
    let thread = Thread {
        pid: Pid(7),
        tid: Tid(8),
        process_name: text(&mut profile, "server"),
        name: text(&mut profile, "worker"),
    };
    let thread = profile.threads.intern(thread).unwrap();
    let labels = [
        ("route", "/pay"),
        (TRACE_ID, "0123456789abcdef0123456789abcdef"),
        (SPAN_ID, "0123456789abcdef"),
    ];
    let labels = labels.map(|(key, value)| Label {
        key: text(&mut profile, key),
        value: LabelValue::Text(text(&mut profile, value)),
    });
    let labels = profile.label_set(labels.to_vec()).unwrap();
    for (event, weight, time) in [(cpu, 5, Some(1000)), (cpu, 6, Some(2000)), (count, 2, None)] {
        profile.samples.push(Sample {
            event,
            weight,
            stack,
            time: time.map(UnixNanos),
            thread: Some(thread),
            cpu: Some(Cpu(3)),
            labels,
        });
    }
    profile.start = Some(UnixNanos(500));
    profile.duration = Some(9000);
    profile
}

fn written(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(profile, &mut bytes).unwrap();
    bytes
}

/// Returns what a sample says, with texts in place of ids.
fn described(profile: &Profile) -> Vec<String> {
    let describe = |sample: &Sample| {
        let frames = profile.stacks.frames(sample.stack);
        let frames: Vec<_> = frames.map(|frame| *profile.frames.get(frame).unwrap()).collect();
        let thread = profile.threads.get(sample.thread.unwrap()).unwrap();
        let mut labels: Vec<String> = profile
            .labels(sample.labels)
            .iter()
            .map(|label| match label.value {
                LabelValue::Text(text) => {
                    format!("{}={}", profile.text(label.key), profile.text(text))
                }
                LabelValue::Number(number, _) => format!("{}={number}", profile.text(label.key)),
            })
            .collect();
        labels.sort();
        let event = profile.events.get(sample.event).unwrap();
        format!(
            "{} {} {:?} {:?} {} {} {} {labels:?} {} frames, {:?}",
            profile.text(event.name),
            sample.weight,
            sample.time,
            sample.cpu,
            thread.tid,
            profile.text(thread.process_name),
            profile.text(thread.name),
            frames.len(),
            frames.last()
        )
    };
    let mut all: Vec<_> = profile.samples.iter().map(describe).collect();
    all.sort();
    all
}

#[test]
fn written_profile_is_read_back() {
    let profile = rich();
    let bytes = written(&profile);
    assert!(is_otlp(&bytes));
    let again = format::read(&bytes).unwrap();
    assert_eq!(described(&again), described(&profile));
    assert_eq!(described(&profile).len(), 3);
    assert!(described(&profile)[0].contains("trace_id=0123456789abcdef0123456789abcdef"));
    assert_eq!((again.start, again.duration), (profile.start, profile.duration));
    let module = again.modules.iter().next().unwrap().1.clone();
    assert_eq!(module.build_id, BuildId::new(&[0xab; 20]));
    assert!(FunctionProfile::new(&again).is_ok());
}

#[test]
fn hash_of_a_file_is_kept_unless_there_is_a_build_id() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use prost::Message;
    let mut profile = Profile::default();
    let path = profile.string("/usr/bin/static").unwrap();
    let build_id = Some(BuildId::of_file_hash([0xc5; 16]));
    let module = Module { build_id, path };
    profile.modules.intern(module.clone()).unwrap();
    let mut request = ExportProfilesServiceRequest::decode(&written(&profile)[..]).unwrap();
    let again = format::read(&request.encode_to_vec()).unwrap();
    assert_eq!(again.modules.iter().next().unwrap().1.build_id, module.build_id);

    let dictionary = request.dictionary.as_mut().unwrap();
    let key = |key: &str, strings: &[String]| strings.iter().position(|text| text == key);
    assert!(key(BUILD_ID, &dictionary.string_table).is_none());
    assert!(key(FILE_HASH, &dictionary.string_table).is_some());
    // A mapping may have both.
    let mut both = dictionary.attribute_table.last().unwrap().clone();
    both.key_strindex = i32::try_from(dictionary.string_table.len()).unwrap();
    dictionary.string_table.push(BUILD_ID.to_owned());
    let number = i32::try_from(dictionary.attribute_table.len()).unwrap();
    dictionary.attribute_table.push(both);
    dictionary
        .mapping_table
        .last_mut()
        .unwrap()
        .attribute_indices
        .insert(0, number);
    let again = format::read(&request.encode_to_vec()).unwrap();
    let found = again.modules.iter().next().unwrap().1.build_id.clone();
    assert_eq!(found, BuildId::new(&[0xc5; 16]));
}

#[test]
fn addresses_of_a_mapping_become_offsets_of_its_file() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use prost::Message;
    let mut request = ExportProfilesServiceRequest::decode(&written(&rich())[..]).unwrap();
    let mut read_at = |start, limit, offset, address| {
        let dictionary = request.dictionary.as_mut().unwrap();
        let mapping = dictionary.mapping_table.last_mut().unwrap();
        (mapping.memory_start, mapping.memory_limit, mapping.file_offset) = (start, limit, offset);
        let mut locations = dictionary.location_table.iter_mut();
        let location = locations.rfind(|location| location.mapping_index != 0).unwrap();
        location.address = address;
        let again = format::read(&request.encode_to_vec()).unwrap();
        let frames = again.frames.iter().map(|(_, frame)| *frame);
        frames
            .filter_map(|frame| match frame {
                Frame::Code { offset, .. } => Some(offset.0),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    // A process; an executable at fixed addresses; what Backtrail writes; no mapping at all.
    assert_eq!(
        read_at(0x5555_5555_5000, 0x5555_5555_9000, 0x1000, 0x5555_5555_5320),
        [0x1320]
    );
    assert_eq!(read_at(0x40_1000, 0x40_2000, 0x1000, 0x40_1234), [0x1234]);
    assert_eq!(read_at(0, u64::MAX, 0, 0x1234), [0x1234]);
    assert_eq!(read_at(0, 0, 0, 0x1234), [0x1234]);
    // The mapping does not have these.
    for address in [0x40_0fff, 0x40_2000, u64::MAX] {
        assert!(read_at(0x40_1000, 0x40_2000, 0x1000, address).is_empty());
    }
    assert!(read_at(0x40_1000, 0, u64::MAX, 0x40_1234).is_empty());
}

#[test]
fn pprof_is_not_taken_for_otlp() {
    let mut bytes = Vec::new();
    format::pprof::write(&rich(), &mut bytes).unwrap();
    assert!(!is_otlp(&bytes));
    assert!(!is_otlp(b""));
    assert!(!is_otlp(b"main;f 2\n"));
}

#[test]
fn missing_elements_are_errors() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use prost::Message;
    let mut request = ExportProfilesServiceRequest::decode(&written(&rich())[..]).unwrap();
    let dictionary = request.dictionary.as_mut().unwrap();
    dictionary.stack_table.truncate(1);
    let error = read(&request.encode_to_vec()).unwrap_err().to_string();
    assert_eq!(error, "OTLP: there is no stack 1");
    let error = read(&[0x0a, 0xff]).unwrap_err().to_string();
    assert!(error.starts_with("OTLP: the request is damaged"), "{error}");
}

/// Returns the labels of a sample as texts.
fn texts(profile: &Profile, sample: &Sample) -> Vec<String> {
    let labels = profile.labels(sample.labels).iter();
    labels
        .map(|label| match label.value {
            LabelValue::Text(text) => format!("{}={}", profile.text(label.key), profile.text(text)),
            LabelValue::Number(number, _) => format!("{}={number}", profile.text(label.key)),
        })
        .collect()
}

#[test]
fn attributes_of_a_resource_are_labels_of_its_samples() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message;
    let mut request = ExportProfilesServiceRequest::decode(&written(&rich())[..]).unwrap();
    let dictionary = request.dictionary.as_mut().unwrap();
    dictionary
        .string_table
        .extend(["host.name", "web1"].map(str::to_owned));
    let named = i32::try_from(dictionary.string_table.len() - 2).unwrap();
    let attribute = |key: &str, key_strindex, value| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        key_strindex,
    };
    let attributes = vec![
        attribute("service.name", 0, Value::StringValue("shop".to_owned())),
        attribute("", named, Value::StringValueStrindex(named + 1)),
        attribute("replica", 0, Value::IntValue(3)),
        // The sample has another one.
        attribute("route", 0, Value::StringValue("/".to_owned())),
    ];
    request.resource_profiles[0].resource = Some(Resource {
        attributes,
        ..Resource::default()
    });
    let profile = read(&request.encode_to_vec()).unwrap();
    let labels = texts(&profile, &profile.samples[0]);
    for text in ["service.name=shop", "host.name=web1", "replica=3", "route=/pay"] {
        assert!(labels.iter().any(|label| label == text), "{labels:?}");
    }
    assert!(!labels.iter().any(|label| label == "route=/"));
    // Another resource has none of them.
    let mut other = request.resource_profiles[0].clone();
    other.resource = None;
    request.resource_profiles.push(other);
    let profile = read(&request.encode_to_vec()).unwrap();
    let last = texts(&profile, profile.samples.last().unwrap());
    assert!(
        !last.iter().any(|label| label.starts_with("service.name")),
        "{last:?}"
    );
    // A name that is not there is refused.
    let resource = request.resource_profiles[0].resource.as_mut().unwrap();
    resource.attributes[1].key_strindex = 10_000;
    assert!(read(&request.encode_to_vec()).is_err());
}
