//! The arguments and the environment with which a program started.
//!
//! The kernel puts both at the end of the first stack, between the random bytes (`AT_RANDOM`) and
//! the name of the program (`AT_EXECFN`). Below them are the count of the arguments, pointers to
//! the arguments, pointers to the environment, and the auxiliary vector.

use super::{EnvironmentRules, MAX_VARIABLES};
use crate::core::Core;
use backtrail_pt::Avma;
use std::collections::BTreeSet;
use std::ops::Range;

/// The longest arguments and environment in bytes: more than the kernel allows.
const MAX_BLOCK: u64 = 8 << 20;
/// The most bytes of pointers to them.
const MAX_POINTERS: u64 = 8 << 20;
/// Types of entries of the auxiliary vector.
const AT_PLATFORM: u64 = 15;
const AT_RANDOM: u64 = 25;
const AT_EXECFN: u64 = 31;
/// The largest type of an entry that the search for the vector passes.
const AT_LAST: u64 = 255;
/// The number of bytes at `AT_RANDOM`.
const RANDOM_BYTES: u64 = 16;
/// The size of a pointer, and of an entry of the auxiliary vector.
const WORD: usize = 8;
const ENTRY: usize = 16;

/// The texts at the end of the first stack.
pub(super) struct StartTexts {
    /// The address of the first byte.
    start: u64,
    bytes: Vec<u8>,
    /// The place of the arguments in `bytes`, if the pointers to them are intact.
    pub(super) arguments: Option<Range<usize>>,
}

impl StartTexts {
    /// Reads the texts. `None`: the core does not have them.
    pub(super) fn of(core: &Core) -> Option<Self> {
        let entry = |kind: u64| {
            let entries = &core.contents().auxv;
            entries
                .iter()
                .find(|(found, _)| *found == kind)
                .map(|(_, value)| *value)
        };
        let end = entry(AT_EXECFN).filter(|end| *end != 0)?;
        // Both are below the arguments.
        let random = entry(AT_RANDOM).map(|at| at.saturating_add(RANDOM_BYTES));
        let start = random.max(entry(AT_PLATFORM).filter(|at| *at < end));
        let start = start.filter(|start| *start < end && end - *start <= MAX_BLOCK)?;
        let mut bytes = vec![0; usize::try_from(end - start).ok()?];
        let saved = core.memory(Avma(start), &mut bytes);
        if saved != bytes.len() {
            return None;
        }
        let mut texts = Self {
            start,
            bytes,
            arguments: None,
        };
        let known = [AT_RANDOM, AT_EXECFN]
            .into_iter()
            .find_map(|kind| Some((kind, entry(kind)?)));
        texts.arguments = known.and_then(|known| texts.find_arguments(core, known));
        Some(texts)
    }

    /// Returns the arguments, starting with the name of the program.
    pub(super) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let arguments = self.arguments.clone().and_then(|range| self.bytes.get(range));
        arguments.unwrap_or_default().split(|byte| *byte == 0)
    }

    /// Returns the addresses of the arguments.
    pub(super) fn argument_range(&self) -> Option<Range<u64>> {
        let range = self.arguments.as_ref()?;
        Some(self.start + range.start as u64..self.start + range.end as u64)
    }

    /// Returns the matching variables with their values. Arguments of the form `NAME=VALUE` count,
    /// unless `without_arguments`. `None`: there are more than [`MAX_VARIABLES`].
    pub(super) fn variables(
        &self,
        rules: &EnvironmentRules,
        without_arguments: bool,
    ) -> Option<BTreeSet<(String, Vec<u8>)>> {
        let mut bytes = self.bytes.clone();
        if let Some(arguments) = self.arguments.clone().filter(|_| without_arguments) {
            bytes.get_mut(arguments)?.fill(0);
        }
        let found = variables(&bytes, rules);
        (found.len() <= MAX_VARIABLES).then_some(found)
    }

    /// Finds the arguments by the pointers to them, which must be as many as their count says.
    /// `known` is an entry of the auxiliary vector.
    fn find_arguments(&self, core: &Core, known: (u64, u64)) -> Option<Range<usize>> {
        let segments = core.contents().segments.iter();
        let stack = segments
            .filter(|segment| segment.start.0 <= self.start)
            .max_by_key(|segment| segment.start)?;
        let from = stack.start.0.max(self.start.saturating_sub(MAX_POINTERS));
        // The vector is aligned to its entries.
        let from = from.next_multiple_of(ENTRY as u64);
        let mut below = vec![0; usize::try_from(self.start.checked_sub(from)?).ok()?];
        if core.memory(Avma(from), &mut below) != below.len() {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(below.get(at..at + WORD)?.try_into().ok()?));
        let needle = [known.0.to_le_bytes(), known.1.to_le_bytes()].concat();
        let found = memchr::memmem::rfind(&below, &needle)?;
        // The first entry follows the null pointer that ends the environment.
        let mut vector = found;
        while let Some(before) = vector.checked_sub(ENTRY)
            && (1..=AT_LAST).contains(&word(before)?)
        {
            vector = before;
        }
        let place_of = |pointer: u64| {
            let place = usize::try_from(pointer.checked_sub(self.start)?).ok()?;
            (place < self.bytes.len()).then_some(place)
        };
        let mut at = vector.checked_sub(WORD).filter(|at| word(*at) == Some(0))?;
        // Programs move pointers to variables, but the null pointer before them stays.
        loop {
            at = at.checked_sub(WORD)?;
            if word(at)? == 0 {
                break;
            }
        }
        let mut places = BTreeSet::new();
        let mut count = 0;
        loop {
            at = at.checked_sub(WORD)?;
            let value = word(at)?;
            match place_of(value) {
                Some(place) => drop(places.insert(place)),
                None if value == count => break,
                None => return None,
            }
            count += 1;
        }
        let (first, last) = (*places.first()?, *places.last()?);
        let size = self.bytes.get(last..)?.iter().position(|byte| *byte == 0)?;
        Some(first..last + size)
    }
}

/// Returns the matching variables of some texts, at most one more than [`MAX_VARIABLES`].
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
    texts.take(MAX_VARIABLES + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{CoreContents, CoreThread, Segment, write};

    #[test]
    fn variables_are_read_from_the_block() {
        let block = b"\0\0ledger\0--verbose\0HOME=/root\0API_TOKEN=s3cret=1\0EMPTY_TOKEN=\0=X\0";
        let rules = EnvironmentRules::new(&["*_TOKEN".to_owned()]).unwrap();
        let found = variables(block, &rules);
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("API_TOKEN".to_owned(), b"s3cret=1".to_vec())]
        );
    }

    const BLOCK: u64 = 0x7fff_0000_8000;

    /// Returns a core whose stack has these texts, and pointers to the arguments and the
    /// environment among them.
    fn core(arguments: &[u64], environment: &[u64], count: u64) -> Core {
        let random = BLOCK - RANDOM_BYTES;
        let mut words = vec![7, count];
        words.extend(arguments.iter().chain(&[0]).chain(environment).chain(&[0]));
        let text = b"x86_64\0ledger\0--key=one\0two\0HOME=/root\0TOKEN=three\0ledger\0";
        let vector = [
            (33, 0x7fff_1000),
            (6, 4096),
            (AT_RANDOM, random),
            (AT_EXECFN, BLOCK + 48),
        ];
        words.extend(vector.iter().flat_map(|(kind, value)| [*kind, *value]));
        words.extend([0, 0, 1, 2]);
        // The vector is aligned to its entries.
        if words.len() % 2 == 1 {
            words.insert(0, 9);
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let start = BLOCK - bytes.len() as u64;
        bytes.extend(text);
        let contents = CoreContents {
            threads: vec![CoreThread::default()],
            auxv: vector.to_vec(),
            segments: vec![Segment {
                start: Avma(start),
                size: bytes.len() as u64,
                saved: bytes.len() as u64,
                ..Segment::default()
            }],
            ..CoreContents::default()
        };
        let mut file = std::io::Cursor::new(Vec::new());
        let memory = |at: Avma, out: &mut [u8]| {
            let from = (at.0 - start) as usize;
            out.copy_from_slice(&bytes[from..from + out.len()]);
            out.len()
        };
        write(&mut file, &contents, memory).unwrap();
        Core::parse(file.into_inner().into(), "core").unwrap()
    }

    #[test]
    fn arguments_are_found_by_their_pointers() {
        let pointers = [7, 14, 24].map(|at| BLOCK + at);
        // A program moved the pointers to two variables.
        for environment in [&[BLOCK + 28, BLOCK + 39][..], &[0x5555_0000, BLOCK + 39], &[]] {
            let texts = StartTexts::of(&core(&pointers, environment, 3)).unwrap();
            let words: Vec<_> = texts.words().map(String::from_utf8_lossy).collect();
            assert_eq!(words, ["ledger", "--key=one", "two"], "{environment:x?}");
            assert_eq!(texts.argument_range(), Some(BLOCK + 7..BLOCK + 27));
            let names = |without| {
                let found = texts.variables(&EnvironmentRules::all(), without).unwrap();
                found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
            };
            assert_eq!(names(true), ["HOME", "TOKEN"]);
            assert_eq!(names(false), ["--key", "HOME", "TOKEN"]);
        }
    }

    #[test]
    fn moved_arguments_are_not_found() {
        let environment = [BLOCK + 28];
        for (arguments, count) in [
            (&[BLOCK + 7, 0x5555_0000][..], 2),
            (&[BLOCK + 7, BLOCK + 14], 3),
            (&[], 0),
        ] {
            let texts = StartTexts::of(&core(arguments, &environment, count)).unwrap();
            assert_eq!(texts.argument_range(), None, "{arguments:x?}");
            assert_eq!(texts.words().filter(|word| !word.is_empty()).count(), 0);
        }
    }
}
