//! Notes of profiles, with the services and hosts of the samples that they are about.

use crate::origin::Origin;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Names of services or hosts. `None`: more than [`OriginNotes::MAX_NAMES`].
pub(crate) type Names = Option<BTreeSet<String>>;

/// Notes by their text. A query gets those that may be about its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginNotes(BTreeMap<String, NoteOrigins>);

/// The origins of a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NoteOrigins {
    /// The services.
    pub(crate) services: Names,
    /// The hosts.
    pub(crate) hosts: Names,
}

impl Default for NoteOrigins {
    fn default() -> Self {
        Self {
            services: Some(BTreeSet::new()),
            hosts: Some(BTreeSet::new()),
        }
    }
}

impl NoteOrigins {
    fn absorb(&mut self, other: &Self) {
        add_names(&mut self.services, other.services.as_ref());
        add_names(&mut self.hosts, other.hosts.as_ref());
    }
}

/// Adds names to others. Too many of them are not listed.
fn add_names(names: &mut Names, more: Option<&BTreeSet<String>>) {
    match (&mut *names, more) {
        (Some(known), Some(more)) => {
            known.extend(more.iter().cloned());
            if known.len() > OriginNotes::MAX_NAMES {
                *names = None;
            }
        }
        _ => *names = None,
    }
}

impl OriginNotes {
    /// The maximum number of services, and of hosts, of a note.
    pub(crate) const MAX_NAMES: usize = 256;
    /// The maximum number of notes.
    pub(crate) const MAX_NOTES: usize = 16;

    /// Adds a note on samples of some origins. At most [`OriginNotes::MAX_NOTES`] are kept.
    pub(crate) fn add(&mut self, text: String, origins: &[Origin]) {
        let names = |name: fn(&Origin) -> &str| {
            let names: BTreeSet<String> = origins.iter().map(|origin| name(origin).to_owned()).collect();
            Some(names).filter(|names| names.len() <= Self::MAX_NAMES)
        };
        let about = NoteOrigins {
            services: names(|origin| &origin.service),
            hosts: names(|origin| &origin.host),
        };
        self.add_about(text, &about);
    }

    /// Adds a note with its origins.
    pub(crate) fn add_about(&mut self, text: String, about: &NoteOrigins) {
        if self.0.len() < Self::MAX_NOTES || self.0.contains_key(&text) {
            self.0.entry(text).or_default().absorb(about);
        }
    }

    /// Returns the notes with their origins.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &NoteOrigins)> {
        self.0.iter().map(|(text, about)| (text.as_str(), about))
    }

    /// Returns the number of notes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(service: &str, host: &str) -> Origin {
        Origin {
            service: service.into(),
            host: host.into(),
            ..Origin::default()
        }
    }

    fn names(names: &[&str]) -> Names {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn origins_of_equal_notes_are_united() {
        let mut notes = OriginNotes::default();
        notes.add("damaged".into(), &[origin("fuzz", "a")]);
        notes.add("lost".into(), &[origin("shop", "a"), origin("cart", "a")]);
        notes.add("lost".into(), &[origin("shop", "b")]);
        let found: Vec<_> = notes
            .iter()
            .map(|(text, about)| (text, about.services.clone(), about.hosts.clone()))
            .collect();
        let expected = [
            ("damaged", names(&["fuzz"]), names(&["a"])),
            ("lost", names(&["cart", "shop"]), names(&["a", "b"])),
        ];
        assert_eq!(found, expected);
        let text = serde_json::to_string(&notes).unwrap();
        assert_eq!(serde_json::from_str::<OriginNotes>(&text).unwrap(), notes);
    }

    #[test]
    fn many_names_of_a_note_are_not_listed() {
        let mut notes = OriginNotes::default();
        let services = (0..=OriginNotes::MAX_NAMES).map(|number| format!("s{number}"));
        let origins: Vec<_> = services.map(|name| origin(&name, "a")).collect();
        for half in origins.chunks(200) {
            notes.add("lost".into(), half);
        }
        let (_, about) = notes.iter().next().unwrap();
        assert_eq!((&about.services, &about.hosts), (&None, &names(&["a"])));
    }
}
