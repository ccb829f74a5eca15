//! Third-party notices: the license texts of everything linked into the binary, each text once.

use super::crates::Package;
use crate::Failure;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const HEAD: &str = "\
Backtrail contains the software of third parties that is listed here, with the licences it comes under. Where there is a
choice, it is used under one that Backtrail's own licence goes with. `cargo xtask notices` makes this file.
";

/// Beginnings of the names of license and notice files.
const NAMES: &[&str] = &[
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "unlicense",
];

/// The notices of these packages.
pub fn text(packages: &[Package]) -> Result<String, Failure> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = HEAD.to_owned();
    out += "\nPackages\n========\n\n";
    for package in packages {
        let title = format!("{} {}", package.name, package.version);
        out += &format!(
            "{title}: {}\n",
            package.license.as_deref().unwrap_or("unknown license")
        );
        let files = license_files(&package.folder)?;
        if files.is_empty() {
            // Some crates ship no text. The license is named above, and the authors are the only
            // holders.
            let authors = package.authors.join(", ");
            let text = format!("No license text comes with the package. Authors: {authors}");
            texts.entry(text).or_default().push(title.clone());
        }
        for text in files {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    let mut texts: Vec<(Vec<String>, String)> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    texts.sort();
    for (of, text) in texts {
        let rule = "-".repeat(80);
        out += &format!("\n{rule}\n{}\n{rule}\n\n{text}\n", of.join(", "));
    }
    Ok(out)
}

/// Returns the texts of the license files in a package's folder, in order of their names.
fn license_files(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error| format!("cannot read {}: {error}", folder.display());
    let mut names: Vec<String> = fs::read_dir(folder)
        .map_err(failed)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let lower = name.to_lowercase();
            NAMES.iter().any(|known| lower.starts_with(known)) && folder.join(name).is_file()
        })
        .collect();
    names.sort();
    let text = |name: &String| {
        let bytes = fs::read(folder.join(name)).map_err(failed)?;
        let lines: Vec<String> = String::from_utf8_lossy(&bytes)
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        Ok(lines.join("\n").trim_matches('\n').to_owned())
    };
    names.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_license_text_is_listed_once_with_its_packages() {
        let root = tempfile::tempdir().unwrap();
        let packages: Vec<Package> = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                let folder = root.path().join(name);
                fs::create_dir(&folder).unwrap();
                fs::write(folder.join("README.md"), "no license").unwrap();
                if name != "c" {
                    fs::write(folder.join("LICENSE-MIT"), "the same text \r\n\r\nof both\n\n").unwrap();
                }
                Package {
                    folder,
                    authors: vec!["somebody".to_owned()],
                    ..Package::sample(name, "1.0.0", "MIT")
                }
            })
            .collect();
        let text = text(&packages).unwrap();
        assert_eq!(text.matches("the same text\n\nof both").count(), 1);
        assert!(
            text.contains("a 1.0.0, b 1.0.0\n") && text.contains("c 1.0.0: MIT\n"),
            "{text}"
        );
        assert!(
            text.contains("Authors: somebody") && !text.contains("no license\n"),
            "{text}"
        );
    }
}
