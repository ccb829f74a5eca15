//! Small profiles that become large ones: short messages, long texts with many references, and
//! stacks that share nothing.

use crate::{harness, memory};
use backtrail_profile::{ReadLimits, format};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// The most memory of a reader. A push waits until it is alone if it is large.
const MOST: usize = 1 << 30;

/// Writes a field with bytes to a message.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Writes a field with a number.
fn number(message: &mut Vec<u8>, tag: u8, value: u64) {
    message.push(tag << 3);
    varint(message, value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Returns a message with `count` fields of the same bytes.
fn repeated(tag: u8, bytes: &[u8], count: usize) -> Vec<u8> {
    let mut one = Vec::new();
    field(&mut one, tag, bytes);
    one.repeat(count)
}

/// Returns a pprof profile with one type of samples, texts and further fields.
fn pprof(texts: &[&[u8]], rest: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut kind = Vec::new();
    number(&mut kind, 1, 1);
    number(&mut kind, 2, 1);
    field(&mut message, 1, &kind);
    for text in [&b""[..], b"samples"].iter().chain(texts) {
        field(&mut message, 6, text);
    }
    message.extend_from_slice(rest);
    message
}

/// Returns an OTLP request of a dictionary and a profile.
fn otlp(dictionary: &[u8], profile: &[u8]) -> Vec<u8> {
    let (mut scope, mut resource, mut request) = (Vec::new(), Vec::new(), Vec::new());
    field(&mut scope, 2, profile);
    field(&mut resource, 2, &scope);
    field(&mut request, 1, &resource);
    field(&mut request, 2, dictionary);
    request
}

/// Reads a profile as it is, and packed. Returns the reason why it is refused, or its notes.
fn read(name: &str, bytes: &[u8]) -> String {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    let packed = gzip.finish().unwrap();
    let mut result = String::new();
    for bytes in [bytes, &packed] {
        let peak = memory::peak_of(|| {
            result = match format::read_within(bytes, &ReadLimits::PUSH) {
                Ok(profile) => profile.notes.join("\n"),
                Err(error) => error.to_string(),
            };
        });
        println!("{name}: {} bytes, {} MiB: {result:.100}", bytes.len(), peak >> 20);
        assert!(peak < MOST, "{name}: {peak} bytes of memory");
    }
    result
}

#[test]
fn tables_of_short_messages_are_bounded() {
    let _alone = harness::alone();
    for table in 3..=5 {
        let tables = repeated(table, &[], 20_000_000);
        let refusal = read("a table of pprof", &pprof(&[], &tables));
        assert!(refusal.contains("134217728 bytes"), "{refusal}");
    }
    let mut lines = Vec::new();
    field(&mut lines, 4, &repeated(4, &[], 20_000_000));
    let refusal = read("lines of a location", &pprof(&[], &lines));
    assert!(refusal.contains("134217728 bytes"), "{refusal}");
    for table in [1, 2, 3, 4, 6, 7] {
        let refusal = read("a table of OTLP", &otlp(&repeated(table, &[], 20_000_000), &[]));
        assert!(refusal.contains("134217728 bytes"), "{refusal}");
    }
    let refusal = read(
        "samples of OTLP",
        &otlp(&[0x2a, 0], &repeated(2, &[], 20_000_000)),
    );
    assert!(refusal.contains("134217728 bytes"), "{refusal}");
}

#[test]
fn references_to_long_texts_are_bounded() {
    let _alone = harness::alone();
    let text = vec![b'a'; 1 << 20];
    let mut comments = Vec::new();
    for _ in 0..1_000_000 {
        number(&mut comments, 13, 2);
    }
    let notes = read("comments", &pprof(&[&text], &comments));
    assert_eq!(notes.len(), text.len(), "one comment");

    // Each attribute, function and sample refers to the long text.
    let (mut dictionary, mut attribute, mut function) = (Vec::new(), Vec::new(), Vec::new());
    field(&mut dictionary, 5, b"");
    field(&mut dictionary, 5, &text);
    number(&mut attribute, 1, 1);
    let mut value = Vec::new();
    number(&mut value, 8, 1);
    field(&mut attribute, 2, &value);
    number(&mut function, 1, 1);
    dictionary.extend(repeated(6, &attribute, 200_000));
    dictionary.extend(repeated(3, &function, 200_000));
    let mut sample = Vec::new();
    number(&mut sample, 2, 1);
    field(&mut sample, 4, &[1]);
    let notes = read("attributes", &otlp(&dictionary, &repeated(2, &sample, 200_000)));
    assert_eq!(notes, "");
}

#[test]
fn many_samples_and_stacks_are_bounded() {
    let _alone = harness::alone();
    let mut sample = Vec::new();
    field(&mut sample, 2, &[1]);
    let refusal = read("samples of pprof", &pprof(&[], &repeated(2, &sample, 5_000_000)));
    assert!(refusal.contains("more than 4000000 samples"), "{refusal}");
    let refusal = read("folded stacks", &b"a 1\n".repeat(5_000_000));
    assert!(refusal.contains("more than 4000000 samples"), "{refusal}");

    // The stacks differ in their outermost frame, so that no two share a caller.
    let mut rest = Vec::new();
    for id in 1..=5000 {
        let mut location = Vec::new();
        number(&mut location, 1, id);
        number(&mut location, 3, id);
        field(&mut rest, 4, &location);
    }
    for outermost in 1..=5000 {
        let (mut ids, mut sample) = (Vec::new(), Vec::new());
        for id in (1..=5000).chain([outermost]) {
            varint(&mut ids, id);
        }
        field(&mut sample, 1, &ids);
        field(&mut sample, 2, &[1]);
        field(&mut rest, 2, &sample);
    }
    let refusal = read("deep stacks", &pprof(&[], &rest));
    assert!(
        refusal.contains("more than 8388608 different callers"),
        "{refusal}"
    );
}
