//! Distinct texts by their index.

use regex::Regex;
use std::collections::HashMap;

/// The index of a text in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TextIdx(pub(super) u32);

/// Distinct texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    texts: Vec<Box<str>>,
    index: HashMap<Box<str>, TextIdx>,
    bytes: usize,
}

impl Texts {
    /// Returns the index of a text.
    pub(super) fn intern(&mut self, text: &str) -> TextIdx {
        if let Some(found) = self.index.get(text) {
            return *found;
        }
        // A segment has fewer than 2^32 texts: memory ends before.
        let index = TextIdx(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.texts.push(text.into());
        self.index.insert(text.into(), index);
        self.bytes += 2 * (text.len() + size_of::<Box<str>>()) + size_of::<TextIdx>();
        index
    }

    /// Returns a text.
    pub(super) fn get(&self, index: TextIdx) -> &str {
        let index = usize::try_from(index.0).unwrap_or(usize::MAX);
        self.texts.get(index).map_or("", |text| text)
    }

    /// Returns the occupied memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether each text matches.
    pub(super) fn matches(&self, pattern: &Regex) -> Vec<bool> {
        self.texts.iter().map(|text| pattern.is_match(text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_index() {
        let mut texts = Texts::default();
        let main = texts.intern("main");
        assert_ne!(texts.intern("free"), main);
        assert_eq!(texts.intern("main"), main);
        assert_eq!(texts.get(main), "main");
        assert_eq!(texts.matches(&Regex::new("^fr").unwrap()), [false, true]);
    }
}
