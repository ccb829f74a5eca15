//! Removes data from a bundle: values of environment variables, arguments, and memory.
//!
//! Programs copy their environment. So the values of matching variables are removed from all saved
//! memory, from the notes of the core and from the description:
//!
//! - after the variable's name and `=`, wherever this is the beginning of a text,
//! - anywhere, if the value has at least [`MIN_VALUE`] bytes and is no absolute path.
//!
//! Transformed values, such as encoded ones, and parts of a value stay. Arguments of at least
//! [`MIN_VALUE`] bytes are removed in the same way, also if they are paths. Shorter ones are
//! removed where the kernel put them.

mod places;
mod start;

use crate::core::Core;
use crate::heap_records;
use crate::manifest::Meta;
use crate::schema::{META_JSON, encode_meta};
use crate::{Bundle, BundlePath, CancelToken, Error, Result, SharedBytes, value_log};
use memchr::memmem::Finder;
use places::{copy_core, overwrite, places, write_without_memory};
use start::StartTexts;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Values of fewer bytes are found after their name only.
pub const MIN_VALUE: usize = 8;
/// The most patterns, and the longest one in bytes.
const MAX_PATTERNS: usize = 256;
const MAX_PATTERN: usize = 255;
/// The most variables whose values are removed.
const MAX_VARIABLES: usize = 4096;
/// The longest value after a name in bytes.
const MAX_TEXT: usize = 128 << 10;
/// The byte in place of those that are removed.
const FILL: u8 = b'x';

/// The variables whose values are removed. A pattern is a name, in which `*` is any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentRules(Vec<String>);

impl EnvironmentRules {
    /// Checks patterns.
    ///
    /// # Errors
    /// Fails if there are too many, or one is empty, too long or has `=` or a control character.
    pub fn new(patterns: &[String]) -> Result<Self> {
        let is_valid = |pattern: &String| {
            let has_others = pattern.chars().any(|letter| letter == '=' || letter.is_control());
            !has_others && (1..=MAX_PATTERN).contains(&pattern.len())
        };
        if let Some(wrong) = patterns.iter().find(|pattern| !is_valid(pattern)) {
            return Err(Error::Usage(format!(
                "{wrong:?} is no pattern of environment variables: use a name, in which * is any text"
            )));
        }
        if patterns.len() > MAX_PATTERNS {
            return Err(Error::Usage(format!(
                "there are more than {MAX_PATTERNS} patterns of environment variables"
            )));
        }
        Ok(Self(patterns.to_vec()))
    }

    /// Returns the rules that match all variables.
    fn all() -> Self {
        Self(vec!["*".to_owned()])
    }

    /// Returns whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the value of a variable is removed.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    }
}

/// Returns whether a name has the form of a pattern, in which `*` is any text.
#[must_use]
pub fn matches_name(pattern: &str, name: &str) -> bool {
    matches(pattern.as_bytes(), name.as_bytes())
}

/// Returns whether a name has the form of a pattern. The time grows with both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // After a mismatch, the last `*` takes one byte more.
    let (mut at, mut next, mut star) = (0, 0, None);
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, next));
                at += 1;
            }
            Some(byte) if name.get(next) == Some(byte) => (at, next) = (at + 1, next + 1),
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, next) = (after, from + 1);
            }
        }
    }
    pattern
        .get(at..)
        .unwrap_or_default()
        .iter()
        .all(|byte| *byte == b'*')
}

/// Data that are removed from a bundle before it is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    /// The values of all environment variables.
    pub environment: bool,
    /// The arguments of the command line.
    pub arguments: bool,
    /// The memory of the process, and its vector registers.
    pub memory: bool,
}

/// The data of a bundle's process that are removed.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// The names of variables.
    names: Vec<String>,
    /// The values that are removed wherever they are.
    values: Vec<Vec<u8>>,
    /// The addresses of the arguments with which the program started.
    arguments: Option<Range<u64>>,
    redaction: Redaction,
}

impl Secrets {
    /// Finds the variables that rules name in the core of a bundle.
    ///
    /// # Errors
    /// Fails if the environment cannot be found in the core, because nothing is sure then. Fails if
    /// the core is malformed.
    pub fn find(bundle: &Bundle, rules: &EnvironmentRules) -> Result<Self> {
        let Some(path) = bundle.manifest().core.as_ref().filter(|_| !rules.is_empty()) else {
            return Ok(Self::default());
        };
        let core = Core::parse(bundle.bytes(path)?, path)?;
        let texts = StartTexts::of(&core).ok_or_else(|| no_environment(path))?;
        let mut secrets = Self::default();
        secrets.add_variables(&texts, rules, false, path)?;
        Ok(secrets)
    }

    /// Finds the data that are removed from a bundle for sharing.
    ///
    /// # Errors
    /// Fails if the environment or the arguments cannot be found in the core and its memory stays,
    /// because nothing is sure then. Fails if the core is malformed.
    pub fn find_for_sharing(bundle: &Bundle, redaction: Redaction) -> Result<Self> {
        let mut secrets = Self {
            redaction,
            ..Self::default()
        };
        let manifest = bundle.manifest();
        let mut words: Vec<Vec<u8>> = Vec::new();
        let stated = manifest.meta.command_line.iter().skip(1);
        words.extend(stated.map(|word| word.as_bytes().to_vec()));
        let mut mapped: Vec<String> = Vec::new();
        if let Some(path) = &manifest.core {
            let core = Core::parse(bundle.bytes(path)?, path)?;
            mapped.extend(core.contents().files.iter().map(|file| file.path.clone()));
            let texts = StartTexts::of(&core);
            if redaction.environment {
                match &texts {
                    Some(texts) => secrets.add_variables(texts, &EnvironmentRules::all(), true, path)?,
                    None if redaction.memory => {}
                    None => return Err(no_environment(path)),
                }
            }
            match texts.filter(|texts| texts.arguments.is_some()) {
                Some(texts) if redaction.arguments => {
                    secrets.arguments = texts.argument_range();
                    words.extend(texts.words().skip(1).map(<[u8]>::to_vec));
                }
                None if redaction.arguments && !redaction.memory => {
                    return Err(Error::unsupported(
                        path,
                        "the arguments are not found in this core, so that they cannot be removed; remove the memory too",
                    ));
                }
                _ => {}
            }
        }
        if redaction.arguments {
            let modules = manifest.processes.iter().flat_map(|process| &process.modules);
            mapped.extend(modules.map(|module| module.path.clone()));
            secrets.add_words(words, &mapped)?;
        }
        Ok(secrets)
    }

    fn add_variables(
        &mut self,
        texts: &StartTexts,
        rules: &EnvironmentRules,
        without_arguments: bool,
        path: &BundlePath,
    ) -> Result<()> {
        let found = texts
            .variables(rules, without_arguments)
            .ok_or_else(|| Error::unsupported(path, format!("more than {MAX_VARIABLES} variables match")))?;
        self.names.extend(found.iter().map(|(name, _)| name.clone()));
        self.names.dedup();
        let values = found.into_iter().map(|(_, value)| value);
        self.values
            .extend(values.filter(|value| !value.starts_with(b"/")));
        Ok(())
    }

    /// Adds arguments, and the values in those of the form `--NAME=VALUE`. Paths of mapped files
    /// stay, because the list of modules has them.
    fn add_words(&mut self, mut words: Vec<Vec<u8>>, mapped: &[String]) -> Result<()> {
        let is_mapped = |value: &[u8]| {
            let finder = Finder::new(value);
            mapped.iter().any(|path| finder.find(path.as_bytes()).is_some())
        };
        words.retain(|word| word.len() >= MIN_VALUE);
        words.sort_unstable();
        words.dedup();
        if words.len() > MAX_VARIABLES {
            return Err(Error::Usage(format!(
                "the command line has more than {MAX_VARIABLES} long arguments, which are too many to remove"
            )));
        }
        for word in words {
            let equals = word.iter().position(|byte| *byte == b'=');
            let value = equals.and_then(|at| word.get(at + 1..)).map(<[u8]>::to_vec);
            for value in [Some(word), value].into_iter().flatten() {
                if value.len() >= MIN_VALUE && !is_mapped(&value) {
                    self.values.push(value);
                }
            }
        }
        self.values.sort_unstable();
        self.values.dedup();
        Ok(())
    }

    /// Returns the names of the variables.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns a text without the values.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        // Values may overlap.
        let mut places = Vec::new();
        for value in self.values.iter().filter(|value| value.len() >= MIN_VALUE) {
            places.extend(
                Finder::new(value)
                    .find_iter(&bytes)
                    .map(|place| (place, value.len())),
            );
        }
        for (place, size) in places {
            fill(&mut bytes, place, size);
        }
        // A value that begins within a character leaves no valid text.
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes the core and the description of the bundle without the data to new files in
    /// `directory`. Returns these files by their paths in the bundle. A bundle without such data
    /// has none.
    ///
    /// # Errors
    /// Fails if a file cannot be written, or if `cancel` was set.
    pub fn remove(
        &self,
        bundle: &Bundle,
        directory: &Path,
        cancel: &CancelToken,
    ) -> Result<BTreeMap<BundlePath, PathBuf>> {
        let mut files = BTreeMap::new();
        let Redaction {
            arguments, memory, ..
        } = self.redaction;
        if self.names.is_empty() && !arguments && !memory {
            return Ok(files);
        }
        let mut count = 0;
        if let Some(path) = &bundle.manifest().core {
            let target = directory.join("core");
            let (mut file, places) = match memory {
                true => {
                    let core = Core::parse(bundle.bytes(path)?, path)?;
                    let file = write_without_memory(&core, &target)?;
                    let places = places(&SharedBytes::map_file(&target)?, self, path, cancel)?;
                    (file, places)
                }
                false => {
                    let places = places(&bundle.bytes(path)?, self, path, cancel)?;
                    (copy_core(&path.resolve(bundle.root())?, &target, cancel)?, places)
                }
            };
            overwrite(&mut file, &target, &places)?;
            count = places.len();
            let _ = files.insert(path.clone(), target);
        }
        if let Some(records) = bundle.heap_records()? {
            // Stacks of callers are memory.
            let target = directory.join(heap_records::FILE);
            std::fs::write(&target, records.without_stacks()?).map_err(Error::io("write", &target))?;
            let _ = files.insert(BundlePath::new(heap_records::FILE)?, target);
        }
        // The values of a log are everywhere in it, so it becomes empty.
        let threads = bundle
            .manifest()
            .processes
            .iter()
            .flat_map(|process| &process.threads);
        for path in threads.filter_map(|thread| thread.values.as_ref()) {
            let target = directory.join("values");
            std::fs::write(&target, value_log::beginning()).map_err(Error::io("write", &target))?;
            let _ = files.insert(path.clone(), target);
        }
        let meta = redacted_meta(bundle, self, count);
        let target = directory.join(META_JSON);
        std::fs::write(&target, format!("{:#}\n", encode_meta(&meta)))
            .map_err(Error::io("write", &target))?;
        let _ = files.insert(BundlePath::new(META_JSON)?, target);
        Ok(files)
    }
}

fn no_environment(path: &BundlePath) -> Error {
    Error::unsupported(
        path,
        "the environment is not found in this core, so that its variables cannot be removed",
    )
}

fn fill(bytes: &mut [u8], at: usize, size: usize) {
    if let Some(part) = bytes.get_mut(at..at + size) {
        part.fill(FILL);
    }
}

/// Returns the description without the data, and with notes for the reader.
fn redacted_meta(bundle: &Bundle, secrets: &Secrets, places: usize) -> Meta {
    let mut meta = bundle.manifest().meta.clone();
    let Redaction {
        environment,
        arguments,
        memory,
    } = secrets.redaction;
    if arguments {
        meta.command_line.clear();
    }
    // The process published its context in its memory, and wrote its messages from there.
    if memory {
        meta.context = None;
        meta.standard_error = None;
    }
    let mut texts: Vec<&mut String> = meta.command_line.iter_mut().collect();
    texts.extend(meta.host.iter_mut().chain(&mut meta.notes));
    if let Some(collected) = &mut meta.collected {
        texts.extend(&mut collected.missing);
    }
    if let Some(text) = &mut meta.standard_error {
        *text = secrets.hide(text);
    }
    if let Some(context) = &mut meta.context {
        let threads = context.threads.iter_mut().map(|thread| &mut thread.attributes);
        for attributes in threads.chain([&mut context.resource]) {
            texts.extend(attributes.values_mut());
        }
    }
    for text in texts {
        *text = secrets.hide(text);
    }
    if environment {
        let note = "the values of all environment variables were removed";
        meta.notes.push(note.to_owned());
    } else if !secrets.names.is_empty() {
        meta.notes.push(format!(
            "values of environment variables were removed from {places} places: {}",
            secrets.names.join(", ")
        ));
    }
    if arguments {
        let note = "the arguments of the command line were removed";
        meta.notes.push(note.to_owned());
    }
    if memory {
        let note = "the memory of the process was removed, so that values in memory are unknown";
        meta.notes.push(note.to_owned());
    }
    meta
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(patterns: &[&str]) -> EnvironmentRules {
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        EnvironmentRules::new(&patterns).unwrap()
    }

    #[test]
    fn patterns_match_whole_names() {
        let rules = rules(&["*_TOKEN", "AWS_*", "PASSWORD", "A*B*C"]);
        for name in [
            "API_TOKEN",
            "_TOKEN",
            "AWS_",
            "AWS_KEY",
            "PASSWORD",
            "ABC",
            "AxxByyBC",
        ] {
            assert!(rules.matches(name), "{name}");
        }
        for name in ["API_TOKENS", "XAWS_KEY", "PASSWORDS", "password", "ABCD", ""] {
            assert!(!rules.matches(name), "{name}");
        }
        let slow = EnvironmentRules::new(&["*a".repeat(100)]).unwrap();
        assert!(!slow.matches(&"a".repeat(99)));
        for wrong in ["", "A=B", "A\n"] {
            assert!(EnvironmentRules::new(&[wrong.to_owned()]).is_err());
        }
    }

    #[test]
    fn texts_lose_values_of_eight_bytes() {
        let secrets = Secrets {
            values: vec![b"s3cret-1".to_vec(), b"short".to_vec()],
            ..Secrets::default()
        };
        assert_eq!(secrets.hide("--key=s3cret-1 short"), "--key=xxxxxxxx short");
    }
}
