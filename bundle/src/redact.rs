//! Removes the values of environment variables from the core of a bundle.
//!
//! The kernel puts the environment at the end of the first stack, between the random bytes
//! (`AT_RANDOM`) and the name of the program (`AT_EXECFN`). Programs copy it. So the values of
//! matching variables are removed from all saved memory and from the notes:
//!
//! - after the variable's name and `=`, wherever this is the beginning of a text,
//! - anywhere, if the value has at least [`MIN_VALUE`] bytes and is no absolute path.
//!
//! Transformed values, such as encoded ones, and parts of a value stay.

use crate::core::Core;
use crate::elf::Elf;
use crate::manifest::Meta;
use crate::schema::{META_JSON, encode_meta};
use crate::{Bundle, BundlePath, CancelToken, Error, Result, SharedBytes};
use backtrail_pt::Avma;
use memchr::memmem::Finder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Values of fewer bytes are found after their name only.
pub const MIN_VALUE: usize = 8;
/// The most patterns, and the longest one in bytes.
const MAX_PATTERNS: usize = 256;
const MAX_PATTERN: usize = 255;
/// The longest arguments and environment in bytes: more than the kernel allows.
const MAX_BLOCK: u64 = 8 << 20;
/// The most variables whose values are removed.
const MAX_VARIABLES: usize = 1024;
/// The most places that are overwritten.
const MAX_PLACES: usize = 1 << 20;
/// The longest value after a name in bytes.
const MAX_TEXT: usize = 128 << 10;
/// The byte in place of those that are removed.
const FILL: u8 = b'x';
/// Types of entries of the auxiliary vector.
const AT_PLATFORM: u64 = 15;
const AT_RANDOM: u64 = 25;
const AT_EXECFN: u64 = 31;
/// The number of bytes at `AT_RANDOM`.
const RANDOM_BYTES: u64 = 16;

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

/// The variables of a bundle's process whose values are removed.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    names: Vec<String>,
    values: Vec<Vec<u8>>,
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
        let block = environment_block(&core).ok_or_else(|| {
            Error::unsupported(
                path,
                "the environment is not found in this core, so that its variables cannot be removed",
            )
        })?;
        let found = variables(&block, rules);
        let mut names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
        names.dedup();
        let values = found.into_iter().map(|(_, value)| value);
        Ok(Self {
            names,
            values: values.filter(|value| !value.starts_with(b"/")).collect(),
        })
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
        for value in self.values.iter().filter(|value| value.len() >= MIN_VALUE) {
            let places: Vec<usize> = Finder::new(value).find_iter(&bytes).collect();
            for place in places {
                fill(&mut bytes, place, value.len());
            }
        }
        // A value that begins within a character leaves no valid text.
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes the core and the description of the bundle without the values to new files in
    /// `directory`. Returns these files by their paths in the bundle. A bundle without a matching
    /// variable has none.
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
        let core = bundle.manifest().core.as_ref();
        let Some(path) = core.filter(|_| !self.names.is_empty()) else {
            return Ok(files);
        };
        let places = places(&bundle.bytes(path)?, self, path, cancel)?;
        let target = directory.join("core");
        write_core(&path.resolve(bundle.root())?, &target, &places, cancel)?;
        let _ = files.insert(path.clone(), target);
        let meta = redacted_meta(bundle, self, places.len());
        let target = directory.join(META_JSON);
        std::fs::write(&target, format!("{:#}\n", encode_meta(&meta)))
            .map_err(Error::io("write", &target))?;
        let _ = files.insert(BundlePath::new(META_JSON)?, target);
        Ok(files)
    }
}

fn fill(bytes: &mut [u8], at: usize, size: usize) {
    if let Some(part) = bytes.get_mut(at..at + size) {
        part.fill(FILL);
    }
}

/// Returns the bytes of the arguments and the environment.
fn environment_block(core: &Core) -> Option<Vec<u8>> {
    let auxv = &core.contents().auxv;
    let entry = |kind: u64| {
        auxv.iter()
            .find(|(found, _)| *found == kind)
            .map(|(_, value)| *value)
    };
    let end = entry(AT_EXECFN).filter(|end| *end != 0)?;
    // Both are below the arguments.
    let random = entry(AT_RANDOM).map(|at| at.saturating_add(RANDOM_BYTES));
    let start = random.max(entry(AT_PLATFORM).filter(|at| *at < end));
    let start = start.filter(|start| *start < end && end - *start <= MAX_BLOCK)?;
    let mut block = vec![0; usize::try_from(end - start).ok()?];
    let saved = core.memory(Avma(start), &mut block);
    (saved == block.len()).then_some(block)
}

/// Returns the matching variables with their values.
fn variables(block: &[u8], rules: &EnvironmentRules) -> BTreeSet<(String, Vec<u8>)> {
    let texts = block.split(|byte| *byte == 0).filter_map(|text| {
        let end = text
            .iter()
            .position(|byte| *byte == b'=')
            .filter(|end| *end > 0)?;
        let name = String::from_utf8_lossy(text.get(..end)?).into_owned();
        let value = text.get(end + 1..)?;
        (!value.is_empty() && rules.matches(&name)).then(|| (name, value.to_vec()))
    });
    texts.take(MAX_VARIABLES).collect()
}

/// Returns the places in the file of a core that have a value: offset and size.
fn places(
    bytes: &SharedBytes,
    secrets: &Secrets,
    path: &BundlePath,
    cancel: &CancelToken,
) -> Result<BTreeSet<(u64, usize)>> {
    let mut places = BTreeSet::new();
    let elf = Elf::parse(bytes, path)?;
    let size = bytes.len() as u64;
    // The notes have the command line, and registers.
    let head = elf.loads().map(|load| load.offset.0).min().unwrap_or(size);
    let memory = elf.loads().map(|load| {
        let start = load.offset.0.min(size);
        start..load.offset.0.saturating_add(load.file_size).min(size)
    });
    for part in memory.chain(std::iter::once(0..head.min(size))) {
        let start = part.start;
        let Some(memory) = bytes.slice(part) else {
            continue;
        };
        find_values(&memory, secrets, cancel, &mut |at, length| {
            let _ = places.insert((start + at as u64, length));
            match places.len() <= MAX_PLACES {
                true => Ok(()),
                false => Err(Error::unsupported(
                    path,
                    "values of environment variables are in too many places",
                )),
            }
        })?;
    }
    Ok(places)
}

/// Calls `found` with offset and size of each value in some bytes.
fn find_values(
    memory: &[u8],
    secrets: &Secrets,
    cancel: &CancelToken,
    found: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    for name in &secrets.names {
        cancel.check()?;
        let name = format!("{name}=");
        for at in Finder::new(&name).find_iter(memory) {
            let is_start = at == 0 || memory.get(at - 1) == Some(&0);
            let rest = memory.get(at + name.len()..).unwrap_or_default();
            let text = rest.get(..rest.len().min(MAX_TEXT)).unwrap_or_default();
            let size = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            if is_start && size > 0 {
                found(at + name.len(), size)?;
            }
        }
    }
    for value in secrets.values.iter().filter(|value| value.len() >= MIN_VALUE) {
        cancel.check()?;
        for at in Finder::new(value).find_iter(memory) {
            found(at, value.len())?;
        }
    }
    Ok(())
}

/// Copies a core, and overwrites the places.
fn write_core(
    source: &Path,
    target: &Path,
    places: &BTreeSet<(u64, usize)>,
    cancel: &CancelToken,
) -> Result<()> {
    let failed = || Error::io("write", target);
    let from = File::open(source).map_err(Error::io("open", source))?;
    let mut file = File::create_new(target).map_err(failed())?;
    cancel.or_canceled(cancel.copy(&from, &mut file).map_err(failed()))?;
    for (offset, size) in places {
        let _ = file.seek(SeekFrom::Start(*offset)).map_err(failed())?;
        file.write_all(&vec![FILL; *size]).map_err(failed())?;
    }
    Ok(())
}

/// Returns the description without the values, and with a note for the reader.
fn redacted_meta(bundle: &Bundle, secrets: &Secrets, places: usize) -> Meta {
    let mut meta = bundle.manifest().meta.clone();
    for word in &mut meta.command_line {
        *word = secrets.hide(word);
    }
    if let Some(text) = &mut meta.standard_error {
        *text = secrets.hide(text);
    }
    if let Some(context) = &mut meta.context {
        let threads = context.threads.iter_mut().map(|thread| &mut thread.attributes);
        for attributes in threads.chain([&mut context.resource]) {
            for value in attributes.values_mut() {
                *value = secrets.hide(value);
            }
        }
    }
    meta.notes.push(format!(
        "values of environment variables were removed from {places} places: {}",
        secrets.names.join(", ")
    ));
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
    fn variables_are_read_from_the_block() {
        let block = b"\0\0ledger\0--verbose\0HOME=/root\0API_TOKEN=s3cret=1\0EMPTY_TOKEN=\0=X\0";
        let found = variables(block, &rules(&["*_TOKEN"]));
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("API_TOKEN".to_owned(), b"s3cret=1".to_vec())]
        );
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
