//! Reading of pushed profiles: their format, their times, their origins and their hash.

use super::origin::{of_labels, of_samples, replace};
use super::push::PushedProfile;
use super::read_push::ReadPush;
use super::sample_times::{self, Arrival};
use crate::error::{Error, Result};
use backtrail_profile::format::{self, jfr, perf_data, recording};
use backtrail_profile::{Profile, ReadLimits, UnixNanos};
use backtrail_store::{Origin, PushHash};
use sha2::{Digest, Sha256};

/// The label of samples whose times count from boot. Their profile ends at its arrival.
const MOVED: (&str, &str) = ("times", "arrival");

/// Reads a profile. The parts of `stated` are those of all its samples. Times are in nanoseconds,
/// and amounts of memory in bytes.
///
/// # Errors
/// Fails if the format is unknown, or if the profile is malformed or too large, also in these
/// units. Fails if the store does not keep samples of its times.
pub fn read(pushed: &PushedProfile, stated: &Origin, arrival: Arrival) -> Result<ReadPush> {
    let mut profile = match pushed.may_be_empty && pushed.bytes.is_empty() {
        true => Profile::default(),
        false => format::read_within(&pushed.bytes, &ReadLimits::PUSH)?,
    };
    check_content(pushed, &profile)?;
    if profile.samples.len() > ReadLimits::PUSH.samples {
        return Err(Error::TooLarge(format!(
            "the profile has {} samples, more than {}; send shorter profiles",
            profile.samples.len(),
            ReadLimits::PUSH.samples
        )));
    }
    if let Some(event) = &pushed.folded {
        event.apply(&mut profile)?;
    }
    profile.convert_units()?;
    let has_times = profile.start.is_some() || profile.samples.iter().all(|sample| sample.time.is_some());
    if !has_times {
        profile.start = pushed.start.map(UnixNanos);
        profile.duration = profile.duration.or(pushed.duration);
    }
    let mut origin = of_labels(&pushed.labels);
    replace(&mut origin, stated);
    let hash = hash(pushed, &origin, &profile)?;
    let is_moved = sample_times::move_from_boot(&mut profile, &pushed.bytes, arrival);
    sample_times::check(&profile, arrival)?;
    let mut labels = pushed.labels.clone();
    if is_moved {
        labels.push((MOVED.0.to_owned(), MOVED.1.to_owned()));
    }
    Ok(ReadPush {
        hash,
        origins: of_samples(&profile, &origin),
        labels,
        is_moved,
        profile,
    })
}

/// Checks that a message has a part of a profile. A profile of an idle time has no samples.
fn check_content(pushed: &PushedProfile, profile: &Profile) -> Result<()> {
    let bytes = &pushed.bytes;
    let has_header =
        perf_data::is_perf_data(bytes) || jfr::is_jfr(bytes) || bytes.starts_with(&recording::HEADER);
    let problem = match bytes.is_empty() {
        true => "the profile is empty",
        false if has_header || !profile.events.is_empty() => return Ok(()),
        false => "the message has no sample type of a profile",
    };
    if pushed.may_be_empty {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{problem}; send pprof, OTLP, perf.data, JFR, folded stacks or a recording of Backtrail"
    )))
}

/// Returns the hash by which a push that is sent again is known. Equal profiles without times are
/// different pushes.
fn hash(pushed: &PushedProfile, origin: &Origin, profile: &Profile) -> Result<PushHash> {
    let mut digest = Sha256::new();
    let texts = [
        &origin.service,
        &origin.host,
        &origin.build,
        &origin.region,
        &origin.language,
    ];
    let labels = pushed.labels.iter().flat_map(|(key, value)| [key, value]);
    let texts = texts.into_iter().map(AsRef::as_ref);
    for text in texts.chain(labels.map(String::as_str)) {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    let is_timed = profile.start.is_some() || profile.samples.iter().any(|sample| sample.time.is_some());
    if is_timed {
        digest.update(profile.start.map_or(0, |start| start.0).to_le_bytes());
    } else {
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|error| Error::system("get random bytes")(std::io::Error::other(error)))?;
        digest.update(random);
    }
    digest.update(&pushed.bytes);
    // Half of the digest, because each stored push costs the bytes of its hash.
    let mut hash = PushHash([0; 16]);
    for (byte, value) in hash.0.iter_mut().zip(digest.finalize()) {
        *byte = value;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVAL: Arrival = Arrival {
        time: UnixNanos(1_000),
        days: 1,
    };

    fn pushed(text: &str, start: Option<u64>) -> PushedProfile {
        PushedProfile {
            labels: vec![("service_name".to_owned(), "shop".to_owned())],
            bytes: text.as_bytes().to_vec(),
            start,
            ..PushedProfile::default()
        }
    }

    #[test]
    fn same_push_has_the_same_hash() {
        let read = |text: &str, start| read(&pushed(text, start), &Origin::default(), ARRIVAL).unwrap();
        let first = read("main;f 1\n", Some(5));
        assert_eq!(first.profile.start, Some(UnixNanos(5)));
        assert_eq!(&*first.origins.origins[0].service, "shop");
        assert_eq!(first.hash, read("main;f 1\n", Some(5)).hash);
        assert_ne!(first.hash, read("main;f 1\n", Some(6)).hash);
        assert_ne!(first.hash, read("main;f 2\n", Some(5)).hash);
        // Sums of two intervals may be equal.
        assert_ne!(read("main;f 1\n", None).hash, read("main;f 1\n", None).hash);
    }

    #[test]
    fn stated_origin_replaces_that_of_labels() {
        let stated = Origin {
            service: "cart".into(),
            host: "a".into(),
            ..Origin::default()
        };
        let push = read(&pushed("main 1\n", None), &stated, ARRIVAL).unwrap();
        assert_eq!(push.origins.origins[0], stated);
    }

    #[test]
    fn messages_without_a_profile_are_refused() {
        let read = |bytes: &[u8], may_be_empty| {
            let pushed = PushedProfile {
                bytes: bytes.to_vec(),
                may_be_empty,
                ..PushedProfile::default()
            };
            read(&pushed, &Origin::default(), ARRIVAL)
        };
        // A message of another kind has a number in its field 9.
        for bytes in [&b""[..], b"\x48\x05"] {
            let error = read(bytes, false).unwrap_err().to_string();
            assert!(error.contains("pprof"), "{error}");
        }
        // A dictionary without profiles is a request of OTLP, and an empty message, too.
        for bytes in [&b""[..], b"\x12\x00"] {
            assert!(read(bytes, true).unwrap().profile.samples.is_empty());
        }
        let mut idle = format::folded::read(&b"main 1\n"[..]).unwrap();
        idle.samples.clear();
        let mut bytes = Vec::new();
        format::pprof::write(&idle, &mut bytes).unwrap();
        assert!(read(&bytes, false).unwrap().profile.samples.is_empty());
    }

    #[test]
    fn malformed_profiles_are_refused_in_a_sentence() {
        let error = read(&pushed("main\n", None), &Origin::default(), ARRIVAL).unwrap_err();
        assert_eq!(error.status(), axum::http::StatusCode::BAD_REQUEST);
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
