//! The crates of `Cargo.lock`: their sources, licenses and duplicates.

use crate::Failure;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Licenses compatible with the project's, for code that is linked into the product or runs in its
/// build.
const LICENSES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates with another license, and why. None is linked into a program.
const LICENSE_EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "tiny-keccak",
    "CC0-1.0",
    "a macro of arrow 59's hash function runs it in the build",
)];

/// Crates that may be there in several versions, and why.
const DOUBLES: &[(&str, &str)] = &[
    ("atoi", "sqlx 0.9 has 2; s3s, a server for tests, has 3"),
    ("base64", "sqlx 0.9, object_store 0.13 and reqwest have 0.22"),
    ("block-buffer", "sqlx 0.9 has sha2 0.10, which has 0.10"),
    ("cpufeatures", "sqlx 0.9 has sha2 0.10, which has 0.2"),
    ("crypto-common", "sqlx 0.9 has sha2 0.10, which has 0.1"),
    ("digest", "sqlx 0.9 has sha2 0.10, which has 0.10"),
    (
        "foldhash",
        "hashbrown 0.15 of the profile queries' engine has 0.1",
    ),
    ("getrandom", "ring has 0.2; tempfile has 0.4"),
    ("hashbrown", "sqlx 0.9 has 0.16"),
    (
        "itertools",
        "bindgen and prost's macros have 0.13, object_store 0.14",
    ),
    ("md-5", "object_store 0.13 has 0.10, for buckets"),
    ("nom", "bindgen has 7, and builds libipt; lettre has 8"),
    ("num-bigint", "arrow 59 has 0.4; s3s, a server for tests, has 0.5"),
    ("object", "aya 0.14 has 0.39, and reads the eBPF objects with it"),
    (
        "quick-xml",
        "object_store 0.13 has 0.39; s3s, a server for tests, has 0.41",
    ),
    ("r-efi", "not built on Linux"),
    (
        "rand",
        "object_store 0.13 and the profile queries' engine have 0.9",
    ),
    (
        "rand_core",
        "object_store 0.13 and the profile queries' engine have 0.9",
    ),
    ("sha2", "sqlx 0.9 has 0.10"),
    (
        "shlex",
        "bindgen has 1, cc has 2; both only build libipt and ring",
    ),
    (
        "spin",
        "flume of sqlx 0.9 has 0.9; s3s, a server for tests, has 0.10",
    ),
    (
        "syn",
        "bindgen's and other macros have 2, serde's and clap's 3; not in the product",
    ),
    ("windows-sys", "not built on Linux"),
    ("zstd", "parquet 59 has 0.13"),
    ("zstd-safe", "parquet 59 has 7; both use one zstd-sys"),
];

/// A package that is not the project's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub id: String,
    /// Where cargo has it from.
    pub source: String,
    /// An SPDX expression.
    pub license: Option<String>,
    pub authors: Vec<String>,
    /// The oldest compiler that builds the package, where the package says so.
    pub rust_version: Option<String>,
    pub folder: PathBuf,
}

impl Package {
    /// Returns all packages of `cargo metadata` except the workspace's own.
    pub fn all(metadata: &Value) -> Result<Vec<Self>, Failure> {
        let members: BTreeSet<&str> = strings(&metadata["workspace_members"]).collect();
        let list = metadata["packages"]
            .as_array()
            .ok_or("cargo metadata lists no packages")?;
        let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let mut found: Vec<Self> = list
            .iter()
            .filter(|package| !members.contains(package["id"].as_str().unwrap_or_default()))
            .map(|package| Self {
                name: text(package, "name"),
                version: text(package, "version"),
                id: text(package, "id"),
                source: text(package, "source"),
                license: package["license"].as_str().map(str::to_owned),
                authors: strings(&package["authors"]).map(str::to_owned).collect(),
                rust_version: package["rust_version"].as_str().map(str::to_owned),
                folder: PathBuf::from(text(package, "manifest_path"))
                    .parent()
                    .map(PathBuf::from)
                    .unwrap_or_default(),
            })
            .collect();
        found.sort();
        Ok(found)
    }
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the problems of these packages.
pub fn check(packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let Package { name, version, .. } = package;
        versions.entry(name).or_default().insert(version);
        if !(package.source.starts_with("registry+") && package.source.ends_with("crates.io-index")) {
            let source = match package.source.as_str() {
                "" => "a folder",
                source => source,
            };
            problems.push(format!(
                "{name} {version} comes from {source}, not from crates.io"
            ));
        }
        let license = package.license.as_deref().unwrap_or_default();
        let is_excepted = LICENSE_EXCEPTIONS
            .iter()
            .any(|(crate_name, text, _)| crate_name == name && *text == license);
        if !is_allowed(license, LICENSES) && !is_excepted {
            problems.push(format!(
                "{name} {version} has the license {license:?}, which is not allowed"
            ));
        }
    }
    for (name, versions) in &versions {
        let allowed = DOUBLES.iter().any(|(double, _)| double == name);
        if versions.len() > 1 && !allowed {
            let list: Vec<&str> = versions.iter().copied().collect();
            problems.push(format!("{name} has several versions: {}", list.join(", ")));
        }
    }
    for (name, _) in DOUBLES {
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            problems.push(format!(
                "{name} has one version: remove it from the list of duplicates"
            ));
        }
    }
    problems
}

/// Returns whether `allowed` licenses alone satisfy an SPDX expression.
pub fn is_allowed(license: &str, allowed: &[&str]) -> bool {
    let mode = spdx::ParseMode::LAX;
    spdx::Expression::parse_mode(license, mode).is_ok_and(|expression| {
        expression.evaluate(|requirement| allowed.contains(&requirement.to_string().as_str()))
    })
}

/// Returns the ids of packages that are linked into a member: no build scripts, macros and tests.
pub fn linked_into(root: &str, metadata: &Value) -> Result<BTreeSet<String>, Failure> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let macros: BTreeSet<String> = list(&metadata["packages"])
        .iter()
        .filter(|package| {
            let targets = list(&package["targets"]);
            targets
                .iter()
                .any(|target| strings(&target["kind"]).any(|kind| kind == "proc-macro"))
        })
        .filter_map(|package| package["id"].as_str().map(str::to_owned))
        .collect();
    let mut edges: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let linked = list(&node["deps"])
            .into_iter()
            .filter(|dep| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
        let to = linked.filter_map(|dep| dep["pkg"].as_str().map(str::to_owned));
        edges.insert(node["id"].as_str().unwrap_or_default().to_owned(), to.collect());
    }
    let first = list(&metadata["packages"])
        .into_iter()
        .find(|package| package["name"] == root);
    let first = first.and_then(|package| package["id"].as_str().map(str::to_owned));
    let mut open = vec![first.ok_or_else(|| format!("the workspace has no package {root}"))?];
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !macros.contains(&id) && found.insert(id.clone()) {
            open.extend(edges.get(&id).into_iter().flatten().cloned());
        }
    }
    Ok(found)
}

#[cfg(test)]
impl Package {
    /// One for tests.
    pub fn sample(name: &str, version: &str, license: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            id: format!("{name}@{version}"),
            source: "registry+somewhere/crates.io-index".to_owned(),
            license: Some(license.to_owned()),
            authors: Vec::new(),
            rust_version: None,
            folder: PathBuf::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The doubles that the list expects, so that only what a test adds is wrong.
    fn expected() -> Vec<Package> {
        let twice = |&(name, _): &(&str, &str)| {
            [
                Package::sample(name, "1.0.0", "MIT"),
                Package::sample(name, "2.0.0", "MIT"),
            ]
        };
        DOUBLES.iter().flat_map(twice).collect()
    }

    fn problems(more: Package) -> Vec<String> {
        let mut packages = expected();
        packages.push(more);
        check(&packages)
    }

    #[test]
    fn a_sound_package_is_no_problem() {
        assert!(check(&expected()).is_empty());
        assert!(problems(Package::sample("a", "1.0.0", "MIT/Apache-2.0")).is_empty());
    }

    #[test]
    fn a_copyleft_license_is_a_problem_where_there_is_no_choice() {
        for wrong in [
            "GPL-3.0-only",
            "MIT AND CDDL-1.0",
            "",
            "no license",
            "Apache-2.0 WITH Classpath-exception-2.0",
        ] {
            assert_eq!(problems(Package::sample("a", "1.0.0", wrong)).len(), 1, "{wrong}");
        }
        assert!(
            problems(Package::sample(
                "a",
                "1.0.0",
                "GPL-2.0-only OR (Apache-2.0 AND ISC)"
            ))
            .is_empty()
        );
    }

    #[test]
    fn another_source_is_a_problem() {
        for source in [
            "git+https://example.com/a",
            "",
            "registry+https://example.com/index",
        ] {
            let mut wrong = Package::sample("a", "1.0.0", "MIT");
            wrong.source = source.to_owned();
            assert!(problems(wrong)[0].contains("not from crates.io"), "{source}");
        }
    }

    #[test]
    fn unlisted_duplicates_and_outdated_rows_are_problems() {
        let mut packages = expected();
        packages.extend([
            Package::sample("a", "1.0.0", "MIT"),
            Package::sample("a", "1.1.0", "MIT"),
        ]);
        assert_eq!(check(&packages), ["a has several versions: 1.0.0, 1.1.0"]);
        packages.retain(|package| package.name != DOUBLES[0].0 && package.name != "a");
        assert!(check(&packages)[0].contains("remove it"));
    }

    #[test]
    fn linked_packages_exclude_macros_tests_and_build_scripts() {
        let metadata = serde_json::json!({
            "packages": [
                {"id": "root", "name": "backtrail", "targets": [{"kind": ["bin"]}]},
                {"id": "lib", "name": "lib", "targets": [{"kind": ["lib"]}]},
                {"id": "mac", "name": "mac", "targets": [{"kind": ["proc-macro"]}]},
                {"id": "deep", "name": "deep", "targets": [{"kind": ["lib"]}]},
            ],
            "resolve": {"nodes": [
                {"id": "root", "deps": [
                    {"pkg": "lib", "dep_kinds": [{"kind": null}]},
                    {"pkg": "mac", "dep_kinds": [{"kind": null}]},
                    {"pkg": "test", "dep_kinds": [{"kind": "dev"}]},
                ]},
                {"id": "lib", "deps": [{"pkg": "deep", "dep_kinds": [{"kind": "build"}, {"kind": null}]}]},
                {"id": "mac", "deps": [{"pkg": "syn", "dep_kinds": [{"kind": null}]}]},
            ]},
        });
        let linked = linked_into("backtrail", &metadata).unwrap();
        assert_eq!(linked.into_iter().collect::<Vec<_>>(), ["deep", "lib", "root"]);
    }
}
