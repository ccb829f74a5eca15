//! The minimum Rust version: no dependency needs a newer compiler than the workspace promises.

use super::crates::Package;
use crate::Failure;
use serde_json::Value;

/// Returns the `rust-version` of the workspace's members, which must agree.
pub fn promised(metadata: &Value) -> Result<String, Failure> {
    let members: Vec<&str> = metadata["workspace_members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut versions: Vec<&str> = packages
        .filter(|package| package["id"].as_str().is_some_and(|id| members.contains(&id)))
        .map(|package| package["rust_version"].as_str().unwrap_or("none"))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    match versions.as_slice() {
        [one] if parse(one).is_some() => Ok((*one).to_owned()),
        several => Err(format!(
            "the members of the workspace need one `rust-version`, not {several:?}"
        )),
    }
}

/// Returns the packages that need a newer compiler than `promised`.
pub fn check(packages: &[Package], promised: &str) -> Vec<String> {
    packages
        .iter()
        .filter_map(|package| {
            let needed = package.rust_version.as_deref()?;
            let is_newer = parse(needed).is_none_or(|needed| Some(needed) > parse(promised));
            is_newer.then(|| {
                let Package { name, version, .. } = package;
                format!("{name} {version} needs Rust {needed}, and the workspace promises {promised}")
            })
        })
        .collect()
}

/// Reads a version of two or three numbers.
fn parse(version: &str) -> Option<[u32; 3]> {
    let mut numbers = [0; 3];
    let mut parts = version.split('.');
    for (at, number) in numbers.iter_mut().enumerate() {
        match parts.next() {
            Some(part) => *number = part.parse().ok()?,
            None if at > 0 => {}
            None => return None,
        }
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needing(version: &str) -> Vec<String> {
        let mut package = Package::sample("a", "1.2.3", "MIT");
        package.rust_version = Some(version.to_owned());
        check(&[package], "1.88")
    }

    #[test]
    fn a_dependency_that_needs_a_newer_compiler_is_a_problem() {
        assert_eq!(
            needing("1.89"),
            ["a 1.2.3 needs Rust 1.89, and the workspace promises 1.88"]
        );
        assert_eq!(needing("1.88.1").len(), 1);
        assert_eq!(needing("two").len(), 1);
    }

    #[test]
    fn older_and_absent_versions_are_fine() {
        for version in ["1.88", "1.88.0", "1.9", "1.56.1"] {
            assert_eq!(needing(version), [""; 0], "{version}");
        }
        assert_eq!(check(&[Package::sample("a", "1.0.0", "MIT")], "1.88"), [""; 0]);
    }

    #[test]
    fn members_that_disagree_are_a_problem() {
        let metadata = |second: &str| {
            serde_json::json!({
                "workspace_members": ["a", "b"],
                "packages": [
                    {"id": "a", "rust_version": "1.88"},
                    {"id": "b", "rust_version": second},
                    {"id": "c", "rust_version": "1.60"},
                ],
            })
        };
        assert_eq!(promised(&metadata("1.88")).unwrap(), "1.88");
        assert!(promised(&metadata("1.90")).is_err());
    }
}
