//! Names of addresses and of trace offsets.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Labels, and the set of those used.
#[derive(Default)]
pub struct Labels {
    values: BTreeMap<String, u64>,
    used: RefCell<BTreeSet<String>>,
}

impl Labels {
    /// Defines a label; duplicates are errors.
    pub fn define(&mut self, name: &str, value: u64) -> Result<(), String> {
        let mut letters = name.chars();
        let good = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !good {
            return Err(format!("`{name}` is no name of a label"));
        }
        match self.values.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(format!("label `{name}` is there twice")),
        }
    }

    /// Parses a number, a label, or a label with an offset.
    pub fn value(&self, text: &str) -> Result<u64, String> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return number(text);
        }
        let (name, distance) = match text.split_once('+') {
            Some((name, distance)) => (name, number(distance)?),
            None => (text, 0),
        };
        let value = self.values.get(name).ok_or(format!("no label `{name}`"))?;
        self.used.borrow_mut().insert(name.to_owned());
        Ok(value.wrapping_add(distance))
    }

    /// Names an address by the label at or shortly before it.
    pub fn name(&self, value: u64) -> String {
        /// The largest offset from a label.
        const NEAR: u64 = 0x100;
        let near = |(_, of): &(&String, &u64)| value >= **of && value - **of < NEAR;
        match self.values.iter().filter(near).max_by_key(|(_, of)| **of) {
            Some((name, of)) if *of == value => name.clone(),
            Some((name, of)) => format!("{name}+{:#x}", value - of),
            None => format!("{value:#x}"),
        }
    }

    /// Returns the label at this value, or the number.
    pub fn exact(&self, value: u64) -> String {
        let found = self.values.iter().find(|(_, of)| **of == value);
        found.map_or(format!("{value:#x}"), |(name, _)| name.clone())
    }

    /// Marks the labels in an expected text as used.
    pub fn use_in(&self, text: &str) {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let known = words.filter(|word| self.values.contains_key(*word));
        self.used.borrow_mut().extend(known.map(str::to_owned));
    }

    /// Returns an unused label.
    pub fn unused(&self) -> Option<&str> {
        let used = self.used.borrow();
        let found = self.values.keys().find(|name| !used.contains(*name));
        found.map(String::as_str)
    }
}

/// Parses hexadecimal with `0x`, else decimal.
pub fn number(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|_| format!("`{text}` is no number"))
}
