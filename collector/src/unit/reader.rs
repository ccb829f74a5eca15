//! Reads a service's files and merges their settings (systemd.unit(5), systemd.syntax(7)).

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The directories of units, in order of precedence.
const DIRECTORIES: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// Maximum size of a unit file.
const MAX_SIZE: u64 = 1 << 20;

/// The settings of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name, with `.service`.
    pub name: String,
    /// The path of the unit.
    pub file: PathBuf,
    settings: Vec<Setting>,
}

/// An assignment in a section `[Service]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    key: String,
    value: String,
    /// The name of the drop-in with the assignment. Empty: the unit itself.
    drop_in: String,
}

impl Service {
    /// Reads a service's files under `root`, except the drop-ins whose names are in `but`.
    ///
    /// # Errors
    /// When the name is invalid, an alias, or masked, the unit does not exist, or a file cannot be
    /// read.
    pub fn find(root: &Path, name: &str, but: &[&str]) -> Result<Self> {
        let stem = name.strip_suffix(".service").unwrap_or(name);
        let allowed = |char: char| char.is_ascii_alphanumeric() || ":-_.\\@".contains(char);
        if stem.is_empty() || stem.starts_with('.') || stem.len() > 200 || !stem.chars().all(allowed) {
            return Err(Error::Unable(format!("{name:?} is not a service name")));
        }
        let names = names(stem);
        let file = names
            .iter()
            .take(2)
            .filter(|name| !name.ends_with("-.service"))
            .find_map(|name| {
                directories(root)
                    .map(|at| at.join(name))
                    .find(|path| path.symlink_metadata().is_ok())
            })
            .ok_or_else(|| {
                Error::Unable(format!(
                    "there is no {stem}.service in {} or the other unit directories",
                    root.join(DIRECTORIES[0]).display()
                ))
            })?;
        refuse_alias(&file, &names)?;
        let text = read(&file)?;
        if text.is_empty() {
            return Err(Error::Unable(format!("{} is masked", file.display())));
        }
        let mut settings = parse(&text, "");
        for (drop_in, path) in drop_ins(root, &names) {
            if !but.contains(&drop_in.as_str()) {
                settings.extend(parse(&read(&path)?, &drop_in));
            }
        }
        Ok(Self {
            name: format!("{stem}.service"),
            file,
            settings,
        })
    }

    /// Returns the value of a key with one value: the last assignment.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.list(key).last().copied()
    }

    /// Returns the values of a key with several values: all since the last empty assignment.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<&str> {
        let all: Vec<&str> = self
            .settings
            .iter()
            .filter(|setting| setting.key == key)
            .map(|setting| setting.value.as_str())
            .collect();
        let from = all
            .iter()
            .rposition(|value| value.is_empty())
            .map_or(0, |at| at + 1);
        all.get(from..).unwrap_or_default().to_vec()
    }

    /// Returns whether a boolean key is true.
    #[must_use]
    pub fn says_yes(&self, key: &str) -> bool {
        let value = self.value(key).unwrap_or_default().to_ascii_lowercase();
        ["1", "yes", "y", "true", "t", "on"].contains(&value.as_str())
    }

    /// Returns the name of the last drop-in that sets a key.
    #[must_use]
    pub fn last_drop_in(&self, key: &str) -> Option<&str> {
        let setting = self.settings.iter().rfind(|setting| setting.key == key)?;
        Some(setting.drop_in.as_str()).filter(|name| !name.is_empty())
    }
}

/// Returns the unit names whose files apply to a service: its own, its template's, its prefixes at
/// dashes, and `service`.
fn names(stem: &str) -> Vec<String> {
    let mut names = vec![format!("{stem}.service")];
    if let Some((prefix, instance)) = stem.split_once('@')
        && !instance.is_empty()
    {
        names.push(format!("{prefix}@.service"));
    }
    let mut rest = stem.split('@').next().unwrap_or_default();
    while let Some((shorter, _)) = rest.rsplit_once('-') {
        names.push(format!("{shorter}-.service"));
        rest = shorter;
    }
    names.push("service".to_owned());
    names
}

fn directories(root: &Path) -> impl Iterator<Item = PathBuf> {
    DIRECTORIES.iter().map(move |directory| root.join(directory))
}

/// Refuses a link to a unit with another name, because that unit's drop-ins apply too.
fn refuse_alias(file: &Path, names: &[String]) -> Result<()> {
    let Ok(target) = fs::read_link(file) else {
        return Ok(());
    };
    let target_name = target.file_name().unwrap_or_default().to_string_lossy();
    if target == Path::new("/dev/null") || names.iter().any(|name| *name == target_name) {
        return Ok(());
    }
    Err(Error::Unable(format!(
        "{} is an alias of {target_name}; use that name",
        file.display()
    )))
}

/// Returns the drop-ins that apply, by name, in reading order.
fn drop_ins(root: &Path, names: &[String]) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for name in names {
        for directory in directories(root) {
            let entries = fs::read_dir(directory.join(format!("{name}.d")));
            for entry in entries.into_iter().flatten().flatten() {
                let file = entry.file_name().to_string_lossy().into_owned();
                if file.ends_with(".conf") && !file.starts_with('.') {
                    // The first file with a name hides the others.
                    found.entry(file).or_insert_with(|| entry.path());
                }
            }
        }
    }
    found
}

fn read(path: &Path) -> Result<String> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        fs::File::open(path)?
            .take(MAX_SIZE + 1)
            .read_to_string(&mut text)?;
        if text.len() as u64 > MAX_SIZE {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "it is longer than 1 MiB",
            ));
        }
        Ok(text)
    };
    read().map_err(Error::file("read", path))
}

/// Parses the assignments in the section `[Service]`. A line that ends with a backslash continues
/// in the next line that is not a comment.
fn parse(text: &str, drop_in: &str) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut section = String::new();
    let mut joined = String::new();
    for line in text.lines().chain([""]) {
        let trimmed = line.trim();
        if trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(begun) = trimmed.strip_suffix('\\') {
            joined += begun;
            joined.push(' ');
            continue;
        }
        joined += trimmed;
        let whole = std::mem::take(&mut joined);
        let whole = whole.trim();
        if let Some(name) = whole.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, value)) = whole.split_once('=')
            && section == "Service"
        {
            settings.push(Setting {
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
                drop_in: drop_in.to_owned(),
            });
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn files_and_drop_ins_are_read_as_systemd_does() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let unit = "[Unit]\nExecStart=/no\n[Service]\nExecStart=/usr/bin/web \\\n# a word\n  --port 80 \\\n  'a b'\nType = notify\n[Install]\nType=x";
        write(at, "lib/systemd/system/web-a.service", unit);
        write(
            at,
            "usr/lib/systemd/system/web-a.service.d/50.conf",
            "[Service]\nUser=theirs\n",
        );
        write(
            at,
            "etc/systemd/system/web-a.service.d/50.conf",
            "[Service]\nUser=ours\n",
        );
        write(
            at,
            "etc/systemd/system/web-.service.d/60.conf",
            "[Service]\nUser=\nGroup=all\n",
        );
        write(
            at,
            "etc/systemd/system/web-a.service.d/mine.conf",
            "[Service]\nExecStart=\nExecStart=/mine\n",
        );
        let service = Service::find(at, "web-a", &["mine.conf"]).unwrap();
        assert_eq!(service.list("ExecStart"), ["/usr/bin/web  --port 80  'a b'"]);
        assert_eq!(service.value("Type"), Some("notify"));
        assert_eq!(
            (service.value("User"), service.value("Group")),
            (None, Some("all"))
        );
        assert_eq!(service.last_drop_in("Group"), Some("60.conf"));
        let service = Service::find(at, "web-a.service", &[]).unwrap();
        assert_eq!(service.list("ExecStart"), ["/mine"]);
        assert_eq!(service.last_drop_in("ExecStart"), Some("mine.conf"));
    }

    #[test]
    fn instance_uses_its_template() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            "lib/systemd/system/db@.service",
            "[Service]\nExecStart=/db %i\n",
        );
        let service = Service::find(root.path(), "db@one", &[]).unwrap();
        assert_eq!(
            (service.name.as_str(), service.value("ExecStart")),
            ("db@one.service", Some("/db %i"))
        );
    }

    #[test]
    fn invalid_services_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(at, "lib/systemd/system/real.service", "[Service]\nExecStart=/x\n");
        let system = at.join("etc/systemd/system");
        fs::create_dir_all(&system).unwrap();
        std::os::unix::fs::symlink("/dev/null", system.join("off.service")).unwrap();
        std::os::unix::fs::symlink("/lib/systemd/system/real.service", system.join("alias.service")).unwrap();
        for (name, expected) in [
            ("../real", "not a service name"),
            ("", "not a service name"),
            ("none", "there is no none.service"),
            ("off", "masked"),
            ("alias", "an alias of real.service"),
        ] {
            let error = Service::find(at, name, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
