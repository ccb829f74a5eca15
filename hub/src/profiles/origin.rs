//! The origin of samples: service, host, build, region and language, which are columns of a store.
//!
//! The request may state them. Otherwise labels do, under the names that OpenTelemetry, Prometheus
//! and Pyroscope use. A sample without a service has that of its process.

use backtrail_profile::{LabelSetId, LabelValue, Profile, Sample, ThreadId};
use backtrail_store::Origin;
use std::collections::HashMap;

/// Names of labels, the more specific ones first.
const SERVICE: [&str; 6] = [
    "service",
    "service.name",
    "service_name",
    "app",
    "application",
    "job",
];
const HOST: [&str; 7] = [
    "host",
    "host.name",
    "host_name",
    "hostname",
    "node",
    "k8s.node.name",
    "instance",
];
const BUILD: [&str; 5] = ["build", "service.version", "service_version", "version", "commit"];
const REGION: [&str; 3] = ["region", "cloud.region", "cloud_region"];
const LANGUAGE: [&str; 3] = ["language", "telemetry.sdk.language", "process.runtime.name"];
/// The languages of runtimes, as OpenTelemetry's conventions name these.
const RUNTIME_LANGUAGES: [(&str, &str); 6] = [
    ("cpython", "python"),
    ("pypy", "python"),
    ("nodejs", "javascript"),
    ("OpenJDK Runtime Environment", "java"),
    (".NET", "dotnet"),
    ("CRuby", "ruby"),
];
/// The label of Pyroscope's clients, and the languages of its values.
const CLIENT: &str = "spy_name";
const CLIENT_LANGUAGES: [(&str, &str); 8] = [
    ("gospy", "go"),
    ("javaspy", "java"),
    ("pyspy", "python"),
    ("rbspy", "ruby"),
    ("nodespy", "javascript"),
    ("dotnetspy", "dotnet"),
    ("phpspy", "php"),
    ("pyroscope-rs", "rust"),
];

/// The service of samples that have neither a label nor a process.
const UNKNOWN: &str = "unknown";

/// The origin of each sample of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleOrigins {
    /// The distinct origins.
    pub origins: Vec<Origin>,
    /// The index of each sample's origin.
    pub of_sample: Vec<u32>,
}

/// Returns the origin that labels of a request state.
#[must_use]
pub fn of_labels(labels: &[(String, String)]) -> Origin {
    let find = |name: &str| {
        let found = labels.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    };
    of(&find)
}

/// Returns the origin of each sample. The parts of `stated` are those of all samples.
#[must_use]
pub fn of_samples(profile: &Profile, stated: &Origin) -> SampleOrigins {
    let mut known: HashMap<(LabelSetId, Option<ThreadId>), u32> = HashMap::new();
    let mut indexes: HashMap<Origin, u32> = HashMap::new();
    let mut origins = Vec::new();
    let mut of_sample = Vec::with_capacity(profile.samples.len());
    for sample in &profile.samples {
        let key = (sample.labels, sample.thread);
        let index = match known.get(&key) {
            Some(index) => *index,
            None => {
                let origin = of_one(profile, sample, stated);
                let next = origins.len() as u32;
                let index = *indexes.entry(origin.clone()).or_insert(next);
                if index == next {
                    origins.push(origin);
                }
                known.insert(key, index);
                index
            }
        };
        of_sample.push(index);
    }
    SampleOrigins { origins, of_sample }
}

fn of_one(profile: &Profile, sample: &Sample, stated: &Origin) -> Origin {
    let labels = profile.labels(sample.labels);
    let find = |name: &str| {
        let found = labels.iter().find(|label| profile.text(label.key) == name);
        match found?.value {
            LabelValue::Text(text) => Some(profile.text(text)),
            _ => None,
        }
    };
    let mut origin = of(&find);
    let process = || {
        let thread = profile.threads.get(sample.thread?)?;
        Some(profile.text(thread.process_name)).filter(|name| !name.is_empty())
    };
    if origin.service.is_empty() {
        origin.service = process().unwrap_or(UNKNOWN).into();
    }
    replace(&mut origin, stated);
    origin
}

/// Replaces the parts of an origin that `stated` has.
pub fn replace(origin: &mut Origin, stated: &Origin) {
    let parts = [
        (&mut origin.service, &stated.service),
        (&mut origin.host, &stated.host),
        (&mut origin.build, &stated.build),
        (&mut origin.region, &stated.region),
        (&mut origin.language, &stated.language),
    ];
    for (part, stated) in parts {
        if !stated.is_empty() {
            part.clone_from(stated);
        }
    }
}

fn of<'a>(find: &dyn Fn(&str) -> Option<&'a str>) -> Origin {
    let first = |names: &[&str]| {
        let mut found = names.iter().filter_map(|name| find(name));
        found.find(|value| !value.is_empty()).unwrap_or_default()
    };
    let client = find(CLIENT).unwrap_or_default();
    let language_in = |names: &[(&str, &'static str)], name: &str| {
        let found = names.iter().find(|(known, _)| *known == name);
        found.map(|(_, language)| *language)
    };
    let language = match first(&LANGUAGE) {
        "" => language_in(&CLIENT_LANGUAGES, client).unwrap_or_default(),
        stated => language_in(&RUNTIME_LANGUAGES, stated).unwrap_or(stated),
    };
    Origin {
        service: first(&SERVICE).into(),
        host: first(&HOST).into(),
        build: first(&BUILD).into(),
        region: first(&REGION).into(),
        language: language.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::{Label, StackId, Thread};
    use backtrail_pt::{Pid, Tid};

    fn pairs(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn labels_of_several_clients_name_the_origin() {
        let origin = of_labels(&pairs(&[
            ("service_name", "shop"),
            ("cloud.region", "eu"),
            ("service.version", "1.2"),
            ("spy_name", "javaspy"),
            ("other", "x"),
        ]));
        assert_eq!(&*origin.service, "shop");
        assert_eq!(&*origin.region, "eu");
        assert_eq!(&*origin.build, "1.2");
        assert_eq!(&*origin.language, "java");
        assert_eq!(&*origin.host, "");
    }

    #[test]
    fn runtimes_have_the_language_of_their_programs() {
        for (runtime, language) in [("cpython", "python"), ("go", "go"), ("nodejs", "javascript")] {
            let origin = of_labels(&pairs(&[("process.runtime.name", runtime)]));
            assert_eq!(&*origin.language, language);
        }
    }

    #[test]
    fn samples_without_labels_have_the_service_of_their_process() {
        let mut profile = Profile::default();
        let event = profile.event("cpu", "nanoseconds", 1).unwrap();
        let key = profile.string("service.name").unwrap();
        let value = LabelValue::Text(profile.string("cart").unwrap());
        let labeled = profile.label_set(vec![Label { key, value }]).unwrap();
        let name = profile.string("nginx").unwrap();
        let thread = Thread {
            pid: Pid(1),
            tid: Tid(1),
            process_name: name,
            name,
        };
        let thread = profile.threads.intern(thread).unwrap();
        for _ in 0..3 {
            profile.add(event, 1, StackId::EMPTY).unwrap();
        }
        profile.samples[0].labels = labeled;
        profile.samples[1].thread = Some(thread);
        let stated = Origin {
            host: "a".into(),
            ..Origin::default()
        };
        let found = of_samples(&profile, &stated);
        let services: Vec<_> = found
            .of_sample
            .iter()
            .map(|index| &*found.origins[*index as usize].service)
            .collect();
        assert_eq!(services, ["cart", "nginx", "unknown"]);
        assert!(found.origins.iter().all(|origin| &*origin.host == "a"));
        let stated = Origin {
            service: "all".into(),
            ..Origin::default()
        };
        let found = of_samples(&profile, &stated);
        assert_eq!(found.origins.len(), 1);
        assert_eq!(found.of_sample, [0, 0, 0]);
    }
}
