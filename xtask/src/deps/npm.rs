//! npm packages: tools that build and test, none of which goes into the product.

use super::crates::is_allowed;
use crate::Failure;
use serde_json::Value;

/// Licenses of tools that run here and are not distributed.
const LICENSES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Artistic-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BlueOak-1.0.0",
    "CC-BY-3.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Python-2.0",
    "WTFPL",
];

/// Packages with a wrong license field, and the license in their files.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "@vscode/vsce-sign",
        "signs packages for the marketplace; Microsoft's own terms; never passed on",
    ),
    (
        "@vscode/windows-ca-certs",
        "says BSD without its number; for Windows, never installed here",
    ),
    ("httpolyglot", "names MIT under npm's older key `licenses`"),
    ("combine-errors", "names MIT in its readme only"),
];

/// Returns the problems of the packages of a lock file.
pub fn check(place: &str, text: &str) -> Result<Vec<String>, Failure> {
    let lock: Value = serde_json::from_str(text).map_err(|error| format!("{place} is not JSON: {error}"))?;
    let packages = lock["packages"]
        .as_object()
        .ok_or_else(|| format!("{place} lists no packages"))?;
    let mut problems = Vec::new();
    // The package without a name is the one that the file is of.
    for (path, package) in packages.iter().filter(|(path, _)| !path.is_empty()) {
        let name = path.rsplit("node_modules/").next().unwrap_or(path);
        let mut wrong = |problem: String| problems.push(format!("{place}: {name} {problem}"));
        let integrity = package["integrity"].as_str().unwrap_or_default();
        if !integrity.starts_with("sha512-") {
            wrong("has no SHA-512 to hold it to".to_owned());
        }
        // Without an address npm asks the registry that it is set up with.
        if let Some(address) = package["resolved"].as_str() {
            wrong(format!("comes from another address, {address}"));
        }
        if package["link"] == true {
            wrong("is a link".to_owned());
        }
        let license = package["license"].as_str().unwrap_or_default();
        let excepted = EXCEPTIONS.iter().any(|(excepted, _)| name.starts_with(excepted));
        if !excepted && !is_allowed(license, LICENSES) {
            wrong(format!("has the license {license:?}, which is not allowed"));
        }
        if package["hasInstallScript"] == true && !SCRIPTS.contains(&name) {
            wrong("runs a script when it is installed".to_owned());
        }
    }
    Ok(problems)
}

/// Packages that have a script for their installation, which is not run (`--ignore-scripts`).
const SCRIPTS: &[&str] = &[
    "@parcel/watcher",
    "@vscode/vsce-sign",
    "argon2",
    "code-server",
    "esbuild",
    "keytar",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(package: &str) -> Vec<String> {
        let text = format!(r#"{{"packages": {{"": {{}}, "node_modules/a": {package}}}}}"#);
        check("lock", &text).unwrap()
    }

    #[test]
    fn a_sound_package_is_no_problem() {
        assert!(problems(r#"{"integrity": "sha512-x", "license": "(MIT OR WTFPL)"}"#).is_empty());
    }

    #[test]
    fn each_fault_is_a_problem() {
        let faults = [
            (r#"{"license": "MIT"}"#, "SHA-512"),
            (r#"{"integrity": "sha1-x", "license": "MIT"}"#, "SHA-512"),
            (r#"{"integrity": "sha512-x", "license": "GPL-3.0"}"#, "license"),
            (r#"{"integrity": "sha512-x"}"#, "license"),
            (
                r#"{"integrity": "sha512-x", "license": "MIT", "resolved": "http://example.com/a"}"#,
                "address",
            ),
            (
                r#"{"integrity": "sha512-x", "license": "MIT", "hasInstallScript": true}"#,
                "script",
            ),
        ];
        for (package, word) in faults {
            let found = problems(package);
            assert!(
                found.len() == 1 && found[0].contains(word),
                "{package}: {found:?}"
            );
        }
        assert!(check("lock", "{}").is_err());
    }
}
